"""What a soak does when: stretches of time, each with its mix of jobs. Pure.

Two things are wanted of one run. Everything mixed, as in life: that is what the limits are judged
by. And crashes, which begin Chromium's memory anew and so hide what it grows by: they have
stretches of their own, and the calm between two of them is one Chromium's, long enough to see it
grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.jobs import Kind

ROUND_SECONDS: Final = 12.0
"""From one sample to the next, if the soak is long; two of them are spent on the sample."""
SHORTEST_ROUND: Final = 3.0
ROUNDS: Final = 40
"""At least so many samples, if the rounds may be as short as that."""
SEASON: Final = 1200.0
"""Seconds of a season (a storm and the calm behind it); there are three or more."""
WARM_UP: Final = 300.0
"""Seconds, if there is as much time for the rest: until what is bounded is full."""

_MIXED: Final = {
    Kind.CONVERSION: 0.62,
    Kind.LOGIN: 0.1,
    Kind.KICKOFF: 0.2,
    Kind.SYNC: 0.06,
    Kind.CRASH: 0.02,
}
_STORM: Final = {Kind.CONVERSION: 0.9, Kind.KICKOFF: 0.1}
_STORM_SHARE: Final = 0.15
"""Of a season."""
LONGEST_STORM: Final = 60.0
"""Seconds. The daemon waits longer for each browser that comes soon after another one's end."""


@dataclass(frozen=True)
class Stretch:
    """So many seconds of one mix."""

    name: str
    weights: Mapping[Kind, float]
    seconds: float
    storm: bool = False
    """Chromium is killed, once in each round."""


def schedule(minutes: float) -> list[Stretch]:
    """The stretches of a soak, the first of them its warm-up."""
    seconds = minutes * 60
    warm_up = min(WARM_UP, seconds / 2)
    seconds -= warm_up
    stretches = [_mixed("warm-up", warm_up)]
    seasons = max(3, round(seconds / SEASON))
    season = seconds / seasons
    for _ in range(seasons):
        storm = _storm(min(LONGEST_STORM, _STORM_SHARE * season))
        stretches += [storm, _mixed("mixed", season - storm.seconds)]
    return stretches


def round_seconds(minutes: float) -> float:
    """How long it is from one sample to the next."""
    return min(ROUND_SECONDS, max(SHORTEST_ROUND, minutes * 60 / ROUNDS))


def _mixed(name: str, seconds: float) -> Stretch:
    return Stretch(name, _MIXED, seconds)


def _storm(seconds: float) -> Stretch:
    return Stretch("storm", _STORM, seconds, storm=True)
