"""Comparisons: two series measured in turns, the ratio of their medians, its spread and its goal.

The sides alternate in rounds, because a machine changes while it is measured. The spread is the
quartiles of the rounds' own ratios. Means were rejected (one pause moves them), and so were bare
times (they mean nothing on another machine) and significance tests (a p-value does not say how
much).

A missed goal is part of the result and raises nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

Better = Literal["less", "more"]


@dataclass(frozen=True)
class Goal:
    """Bounds of a ratio (ours / theirs). Without a bound there is no goal."""

    at_most: float | None = None
    at_least: float | None = None

    def met_by(self, ratio: float) -> bool:
        return (self.at_most is None or ratio <= self.at_most) and (
            self.at_least is None or ratio >= self.at_least
        )


NO_GOAL: Final = Goal()
PAUSE: Final = 0.02
"""Seconds before each turn, in which the other side may finish its work, such as a process that is
still exiting."""


@dataclass(frozen=True)
class Spread:
    """A median and its quartiles."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Series:
    """The values of one side, one for each round."""

    name: str
    unit: str
    values: Sequence[float]

    @property
    def spread(self) -> Spread:
        return _spread(self.values)


@dataclass(frozen=True)
class Comparison:
    """Two sides. Values at the same index were measured in the same round."""

    name: str
    ours: Series
    theirs: Series
    better: Better = "less"
    goal: Goal = NO_GOAL
    floor: Series | None = None
    """Times of a program that does only what no solution can leave out; None without a floor."""

    def __post_init__(self) -> None:
        if not self.ours.values or len(self.ours.values) != len(self.theirs.values):
            raise ValueError(f"{self.name}: both sides need a value for each round")
        if self.floor is not None and self.better == "more":
            raise ValueError(f"{self.name}: of what is better when it is more there is no floor")

    @property
    def ratio(self) -> Spread:
        """The medians' ratio (ours / theirs), and the quartiles of the rounds' ratios."""
        pairs = zip(self.ours.values, self.theirs.values, strict=True)
        around = _spread([_ratio(ours, theirs) for ours, theirs in pairs])
        middle = _ratio(self.ours.spread.middle, self.theirs.spread.middle)
        return Spread(min(around.low, middle), middle, max(around.high, middle))

    @property
    def least(self) -> float | None:
        """The ratio of the floor to theirs; None if there is no floor."""
        if self.floor is None:
            return None
        return _ratio(self.floor.spread.middle, self.theirs.spread.middle)

    @property
    def met(self) -> bool:
        return self.goal.met_by(self.ratio.middle)

    @property
    def within_reach(self) -> bool:
        """False if the goal is below the floor."""
        return self.least is None or self.goal.met_by(self.least)

    def as_dict(self) -> dict[str, Any]:
        """Return the entry for the results' file."""
        ratio = self.ratio
        return {
            "name": self.name,
            "better": self.better,
            "rounds": len(self.ours.values),
            "ratio": {"median": ratio.middle, "low": ratio.low, "high": ratio.high},
            "goal": {"at_most": self.goal.at_most, "at_least": self.goal.at_least},
            "met": self.met,
            "least": self.least,
            "within_reach": self.within_reach,
            "ours": _series_as_dict(self.ours),
            "theirs": _series_as_dict(self.theirs),
            "floor": None if self.floor is None else _series_as_dict(self.floor),
        }


@dataclass(frozen=True)
class Row:
    """A question and its measurements. Notes say what the figures include or leave out."""

    number: int
    title: str
    comparisons: Sequence[Comparison]
    notes: Sequence[str] = ()

    @property
    def met(self) -> bool:
        return all(comparison.met for comparison in self.comparisons)

    def as_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "title": self.title,
            "met": self.met,
            "comparisons": [comparison.as_dict() for comparison in self.comparisons],
            "notes": list(self.notes),
        }


def _ignore(_text: str) -> None:
    pass


@dataclass(frozen=True)
class Plan:
    """The settings of one row. `folder` is empty at its start, and removed after it."""

    folder: Path
    quick: bool = False
    tell: Callable[[str], None] = field(default=_ignore)
    """Print a line about the progress."""

    def rounds(self, most: int, quick: int) -> int:
        return quick if self.quick else most


def turns(sides: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each round, from 1, and the side whose turn it is: A B, B A, A B, …"""
    for number in range(1, rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            time.sleep(PAUSE)
            yield number, side


def interleave(
    sides: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None] = _ignore,
) -> dict[str, list[float]]:
    """Return each side's measurements, one for each round."""
    found: dict[str, list[float]] = {side: [] for side in sides}
    for number, side in turns(list(sides), rounds):
        tell(f"round {number} of {rounds}: {side}")
        found[side].append(sides[side]())
    return found


def _spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, statistics.median(values), high)


def _ratio(ours: float, theirs: float) -> float:
    if theirs:
        return ours / theirs
    return inf if ours else 1.0


def _series_as_dict(series: Series) -> dict[str, Any]:
    spread = series.spread
    return {
        "name": series.name,
        "unit": series.unit,
        "median": spread.middle,
        "low": spread.low,
        "high": spread.high,
        "values": list(series.values),
    }
