"""Counts the cells of the fault matrices that a test run has covered.

A test of a cell says which it is by the property `fault cell`; that of a whole matrix says how many
there are by `fault cells`, and several matrices add up. Both travel with the reports, also from the
workers of xdist.
"""

from __future__ import annotations

from typing import Any

CELL = "fault cell"
CELLS = "fault cells"


def summary(reports: list[Any]) -> str | None:
    """One line, or None where the run had nothing to do with the matrix."""
    possible = 0
    covered: set[str] = set()
    failed: set[str] = set()
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == CELLS:
                possible += int(value)
            elif name == CELL:
                (covered if report.passed else failed).add(str(value))
    if not possible:
        return None
    share = 100 * len(covered) / possible
    told = f"{len(covered)} / {possible} cells covered ({share:.0f} %), {len(failed)} failing"
    return f"fault matrix: {told}"
