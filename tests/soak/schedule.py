"""The schedule of a soak: stretches of time, each with its mix of jobs. Pure.

In most stretches all kinds of jobs are mixed. Crashes of Chromium have short stretches of their
own, so that one Chromium lives long enough between them to show its growth.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.soak.jobs import Kind

ROUND_SECONDS: Final = 12.0
"""The longest round, in seconds. Two seconds of it are for the sample."""
SHORTEST_ROUND: Final = 3.0
"""The shortest round, in seconds."""
MIN_ROUNDS: Final = 40
"""The number of rounds in a short soak, if its rounds are long enough."""
CYCLE: Final = 1200.0
"""Seconds of a cycle: a stretch with crashes and a mixed one. There are three cycles or more."""
WARM_UP: Final = 300.0
"""Seconds until bounded tables are full; at most half of the soak."""

_MIXED: Final = {
    Kind.CONVERSION: 0.62,
    Kind.LOGIN: 0.1,
    Kind.KICKOFF: 0.2,
    Kind.SYNC: 0.06,
    Kind.CRASH: 0.02,
}
_CRASHES: Final = {Kind.CONVERSION: 0.9, Kind.KICKOFF: 0.1}
_CRASH_SHARE: Final = 0.15
"""The share of the crashes in a cycle."""
MAX_CRASH_SECONDS: Final = 60.0
"""Seconds. The daemon restarts Chromium more slowly after each crash in a short time."""


@dataclass(frozen=True)
class Stretch:
    """A stretch of time with one mix of jobs."""

    name: str
    weights: Mapping[Kind, float]
    seconds: float
    kills_chromium: bool = False
    """True if Chromium is killed once in each round."""


def schedule(minutes: float) -> list[Stretch]:
    """Return the stretches of a soak. The first one is its warm-up."""
    seconds = minutes * 60
    warm_up = min(WARM_UP, seconds / 2)
    seconds -= warm_up
    stretches = [_mixed("warm-up", warm_up)]
    cycles = max(3, round(seconds / CYCLE))
    cycle = seconds / cycles
    for _ in range(cycles):
        crashes = _crashes(min(MAX_CRASH_SECONDS, _CRASH_SHARE * cycle))
        stretches += [crashes, _mixed("mixed", cycle - crashes.seconds)]
    return stretches


def round_seconds(minutes: float) -> float:
    """Return the seconds from one sample to the next."""
    return min(ROUND_SECONDS, max(SHORTEST_ROUND, minutes * 60 / MIN_ROUNDS))


def _mixed(name: str, seconds: float) -> Stretch:
    return Stretch(name, _MIXED, seconds)


def _crashes(seconds: float) -> Stretch:
    return Stretch("crashes", _CRASHES, seconds, kills_chromium=True)
