"""What a measurement is: two series taken in turns, their ratio, its spread, and a goal for it.

The machine changes while one measures: a neighbour wakes up, the clock slows down, a cache fills.
So nothing is measured first here and then there, but in rounds; in a round each side is measured
once, and which one begins alternates. A neighbour that stays for some seconds then weighs on
both.

What is told is the ratio of the medians. Its spread is that of the rounds' own ratios: the
quartiles of ours / theirs, each pair measured within the same seconds. Rejected: means (one pause
of the machine moves them), a bare time (it says nothing on another machine), and a test of
significance (its answer is a p-value, and the question is how much).

A missed goal is a fact in the result, not an exception. Pure, but for the clock that sides read.
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
    """What a ratio (ours / theirs) has to be. Without either there is none: it is only told."""

    at_most: float | None = None
    at_least: float | None = None

    def met_by(self, ratio: float) -> bool:
        return (self.at_most is None or ratio <= self.at_most) and (
            self.at_least is None or ratio >= self.at_least
        )


NO_GOAL: Final = Goal()
PAUSE: Final = 0.02
"""Seconds before each turn: what a side still does when it has answered, as a program that is on
its way out, is not the next one's burden."""


@dataclass(frozen=True)
class Spread:
    """A figure and the quartiles around it."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Series:
    """One side: a value for each round."""

    name: str
    unit: str
    values: Sequence[float]

    @property
    def spread(self) -> Spread:
        return _spread(self.values)


@dataclass(frozen=True)
class Comparison:
    """Ours beside theirs. Values with the same place in both were measured in the same round."""

    name: str
    ours: Series
    theirs: Series
    better: Better = "less"
    goal: Goal = NO_GOAL
    floor: Series | None = None
    """What it takes somebody who does only what nobody can leave out."""

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
        """What the ratio would be of the floor in the place of ours."""
        if self.floor is None:
            return None
        return _ratio(self.floor.spread.middle, self.theirs.spread.middle)

    @property
    def met(self) -> bool:
        return self.goal.met_by(self.ratio.middle)

    @property
    def within_reach(self) -> bool:
        """Whether the goal is not below the floor."""
        return self.least is None or self.goal.met_by(self.least)

    def told(self) -> dict[str, Any]:
        """For the results' file."""
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
            "ours": _told(self.ours),
            "theirs": _told(self.theirs),
            "floor": None if self.floor is None else _told(self.floor),
        }


@dataclass(frozen=True)
class Row:
    """A question, and all that was measured to answer it. Notes are for the reader: what else was
    counted, what the figure does not say."""

    number: int
    title: str
    comparisons: Sequence[Comparison]
    notes: Sequence[str] = ()

    @property
    def met(self) -> bool:
        return all(comparison.met for comparison in self.comparisons)

    def told(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "title": self.title,
            "met": self.met,
            "comparisons": [comparison.told() for comparison in self.comparisons],
            "notes": list(self.notes),
        }


def _say_nothing(_text: str) -> None:
    pass


@dataclass(frozen=True)
class Plan:
    """How a row is to be measured. `folder` is the row's own, empty, and goes when it is done."""

    folder: Path
    quick: bool = False
    tell: Callable[[str], None] = field(default=_say_nothing)
    """What goes on, in a line."""

    def rounds(self, most: int, quick: int) -> int:
        return quick if self.quick else most


def turns(sides: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Whose turn it is: A B, B A, A B, … each with the number of its round, from 1."""
    for number in range(1, rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            time.sleep(PAUSE)
            yield number, side


def interleave(
    sides: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None] = _say_nothing,
) -> dict[str, list[float]]:
    """What each side measures, round by round."""
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


def _told(series: Series) -> dict[str, Any]:
    spread = series.spread
    return {
        "name": series.name,
        "unit": series.unit,
        "median": spread.middle,
        "low": spread.low,
        "high": spread.high,
        "values": list(series.values),
    }
