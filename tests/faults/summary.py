"""Counts the cells of the matrices that a test run has covered, and the strikes at every step.

A test of a cell says which it is by the property `fault cell` (or `supervisor cell`); that of a
whole matrix says how many there are by `fault cells`, and several of one kind add up. A scenario
that is struck at every step (`tests/every_step`) says how many steps that were by `cancellation
checkpoints`. All of it travels with the reports, also from the workers of xdist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

KINDS = ("fault", "supervisor")


def summaries(reports: list[Any]) -> list[str]:
    """A line for each kind of matrix that the run had to do with, and one for the strikes."""
    lines = [*(summary(kind, reports) for kind in KINDS), strikes(reports)]
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


def strikes(reports: list[Any]) -> str | None:
    """The line of what was struck at every step."""
    told = list(_strikes(reports))
    if not told:
        return None
    checkpoints = sum(number for _, number in told)
    failing = sum(not report.passed for report, _ in told)
    return f"cancellation: {len(told)} scenarios, {checkpoints} checkpoints, {failing} failing"


def struck(reports: list[Any]) -> list[str]:
    """A line for each scenario, for whoever wants to see them all."""
    return [f"{number:6} checkpoints of {report.nodeid}" for report, number in _strikes(reports)]


def _strikes(reports: list[Any]) -> Iterator[tuple[Any, int]]:
    for report in reports:
        for name, value in getattr(report, "user_properties", ()):
            if name == "cancellation checkpoints":
                yield report, int(value)
