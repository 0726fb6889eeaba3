"""Counts the cells of the matrices that a test run has covered.

A test of a cell says which it is by the property `fault cell` (or `supervisor cell`); that of a
whole matrix says how many there are by `fault cells`, and several of one kind add up. Both travel
with the reports, also from the workers of xdist.
"""

from __future__ import annotations

from typing import Any

KINDS = ("fault", "supervisor")


def summaries(reports: list[Any]) -> list[str]:
    """A line for each kind of matrix that the run had to do with."""
    lines = (summary(kind, reports) for kind in KINDS)
    return [line for line in lines if line is not None]


def summary(kind: str, reports: list[Any]) -> str | None:
    """The line of one kind."""
    possible = 0
    covered: set[str] = set()
    failed: set[str] = set()
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == f"{kind} cells":
                possible += int(value)
            elif name == f"{kind} cell":
                (covered if report.passed else failed).add(str(value))
    if not possible:
        return None
    share = 100 * len(covered) / possible
    told = f"{len(covered)} / {possible} cells covered ({share:.0f} %), {len(failed)} failing"
    return f"{kind} matrix: {told}"
