"""From samples to slopes, and from slopes to a verdict. Pure.

Whether a limit was held is told in three ways. It is broken when even the low end of the slope's
interval is beyond it, and held when even the high end is not. In between the soak was too short to
tell, and says so: it is no proof then, in either direction.

Everything that the daemon grows by is held against its conversions, whatever else was done
meanwhile. What grows with something else is so told as a part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from tests.soak.fit import NOTHING, SURE, Run, Slope, slope
from tests.soak.jobs import Kind
from tests.soak.samples import Sample

YOUNG: Final = 100
"""Conversions for which a Chromium is young: it fills its caches, and grows as never again."""

FLAT: Final = ("daemon descriptors", "daemon threads", "daemon tasks", "daemon reapers")
FLAT_IN_CHROMIUM: Final = ("chromium descriptors", "chromium threads")
COLD: Final = 1000
"""Conversions for which the daemon is cold: what it remembers is bounded, and not full yet; the
same goes for the pages that SQLite keeps, and for what Python and its libraries keep at hand."""
DAEMON: Final = 1.0
CHROMIUM: Final = 20.0
"""Kilobytes that a conversion may cost, in the daemon and in Chromium's main process."""


class Verdict(StrEnum):
    HELD = "held"
    BROKEN = "BROKEN"
    UNDECIDED = "too short to tell"


@dataclass(frozen=True)
class Finding:
    """A limit, and what was seen. The slope is for one conversion."""

    what: str
    unit: str
    slope: Slope
    limit: float
    verdict: Verdict


def findings(samples: Sequence[Sample]) -> list[Finding]:
    """All limits. The first stretch was the warm-up."""
    found = [
        _limited("the daemon's memory", _whole(samples, "daemon private", COLD), DAEMON),
        _limited("Chromium's main process", _generations(samples, "chromium private"), CHROMIUM),
    ]
    found += [_flat(column, _whole(samples, column, 0)) for column in FLAT]
    found += [_flat(column, _generations(samples, column)) for column in FLAT_IN_CHROMIUM]
    return found


def _whole(samples: Sequence[Sample], column: str, cold: int) -> list[Run]:
    """The daemon's one run, by conversions."""
    warm = [each for each in samples if each.stretch > 0 and each.jobs[Kind.CONVERSION] >= cold]
    return [[_point(each, column) for each in warm]]


def _generations(samples: Sequence[Sample], column: str) -> list[Run]:
    """A run for each Chromium, from when it was young no more."""
    runs: list[Run] = []
    for _, grouped in groupby(samples, key=lambda each: each.generation):
        generation = list(grouped)
        born = generation[0].jobs[Kind.CONVERSION]
        grown = [each for each in generation if each.jobs[Kind.CONVERSION] - born >= YOUNG]
        runs.append([_point(each, column) for each in grown])
    return runs


def _point(sample: Sample, column: str) -> tuple[float, float]:
    return sample.jobs[Kind.CONVERSION], sample.values[column]


def _limited(what: str, runs: list[Run], limit: float) -> Finding:
    found = slope(runs)
    if found.low > limit:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.HELD if found.high <= limit else Verdict.UNDECIDED
    return Finding(what, "kB", found, limit, verdict)


def _flat(column: str, runs: list[Run]) -> Finding:
    """Flat is what does not surely grow, by a whole one or more in the whole time.

    Surely, since there are many of these, and chance alone would break one in every few soaks.
    """
    found = slope(runs, within=SURE)
    if found == NOTHING:
        return Finding(column, "", found, 0.0, Verdict.UNDECIDED)
    length = sum(run[-1][0] - run[0][0] for run in runs if run)
    grows = found.low > 0 and found.value * length >= 1
    return Finding(column, "", found, 0.0, Verdict.BROKEN if grows else Verdict.HELD)
