"""Verdicts on the samples of a soak. Pure.

A limit is broken when the whole interval of the slope is above it, and held when the whole interval
is at or below it. Otherwise the soak was too short to tell.

All growth is measured for each conversion, also growth with another cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from tests.soak.fit import UNKNOWN, Z_999, Run, Slope, slope
from tests.soak.samples import Sample

CHROMIUM_WARM_UP: Final = 100
"""Conversions in which a new Chromium fills its caches."""
DAEMON_WARM_UP: Final = 1000
"""Conversions until the daemon's bounded tables and the caches of SQLite and Python are full."""
OBJECTS_LIMIT: Final = 5.0
"""The most objects of Python that a conversion may leave behind. Ten have about 1 kB."""
DAEMON_LIMIT: Final = 1.0
CHROMIUM_LIMIT: Final = 20.0
"""The most kilobytes that a conversion may cost in the daemon, and in all processes of Chromium."""
FLAT: Final = ("daemon descriptors", "daemon threads", "daemon tasks", "daemon reapers")
FLAT_IN_CHROMIUM: Final = ("chromium descriptors", "chromium threads")


class Verdict(StrEnum):
    HELD = "held"
    BROKEN = "BROKEN"
    UNDECIDED = "too short to tell"


@dataclass(frozen=True)
class Finding:
    """The measured slope for one conversion. `limit` is 0 for what has to be flat."""

    what: str
    slope: Slope
    verdict: Verdict
    limit: float = 0.0
    unit: str = ""


def findings(samples: Sequence[Sample]) -> list[Finding]:
    """Return a finding for each limit. The first stretch of the samples is the warm-up."""
    objects = _daemon_run(samples, "daemon objects", DAEMON_WARM_UP)
    allocated = _daemon_run(samples, "daemon allocated", DAEMON_WARM_UP)
    private = _daemon_run(samples, "daemon private", DAEMON_WARM_UP)
    chromium = _chromium_runs(samples, "tree private")
    return [
        _limited("the daemon's objects", objects, OBJECTS_LIMIT, "objects"),
        _limited("the daemon's malloc", allocated, DAEMON_LIMIT, "kB"),
        _limited("the daemon's private memory", private, DAEMON_LIMIT, "kB"),
        _limited("Chromium", chromium, CHROMIUM_LIMIT, "kB"),
        *(_flat(column, _daemon_run(samples, column, 0)) for column in FLAT),
        *(_flat(column, _chromium_runs(samples, column)) for column in FLAT_IN_CHROMIUM),
    ]


def _daemon_run(samples: Sequence[Sample], column: str, warm_up: int) -> list[Run]:
    """Return the daemon's one run: points of a column by conversions, after the warm-up."""
    warm = [each for each in samples if each.stretch > 0 and each.conversions >= warm_up]
    return [[(each.conversions, each.values[column]) for each in warm]]


def _chromium_runs(samples: Sequence[Sample], column: str) -> list[Run]:
    """Return a run for each Chromium, after its warm-up."""
    runs: list[Run] = []
    for _, grouped in groupby(samples, key=lambda each: each.generation):
        generation = list(grouped)
        warm = generation[0].conversions + CHROMIUM_WARM_UP
        points = [(each.conversions, each.values[column]) for each in generation]
        runs.append([point for point in points if point[0] >= warm])
    return runs


def _limited(what: str, runs: list[Run], limit: float, unit: str) -> Finding:
    found = slope(runs)
    if found.low > limit:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.HELD if found.high <= limit else Verdict.UNDECIDED
    return Finding(what, found, verdict, limit, unit)


def _flat(column: str, runs: list[Run]) -> Finding:
    """Return a broken verdict if a count grows by one or more in the whole time.

    The interval is wide: there are many counts, and chance must not break one of them.
    """
    found = slope(runs, within=Z_999)
    if found == UNKNOWN:
        return Finding(column, found, Verdict.UNDECIDED)
    length = sum(run[-1][0] - run[0][0] for run in runs if run)
    grows = found.low > 0 and found.value * length >= 1
    return Finding(column, found, Verdict.BROKEN if grows else Verdict.HELD)
