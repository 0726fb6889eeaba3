"""Samples of a soak that never was: noise, and whatever shape a test puts under it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from tests.soak.jobs import Kind
from tests.soak.judgement import FLAT, FLAT_IN_CHROMIUM
from tests.soak.samples import Sample

COLUMNS = (
    "daemon private",
    "daemon blocks",
    "chromium private",
    "tree private",
    "browser restarts",
    *FLAT,
    *FLAT_IN_CHROMIUM,
)
Shape = Callable[[int, int], float]
"""Conversions since the beginning, and in this Chromium's life → a value."""


def made_up(
    *, shapes: Mapping[str, Shape] | None = None, crash_every: int = 10_000, rounds: int = 120
) -> list[Sample]:
    """Fifty conversions a round; all columns are flat and a little noisy, but for `shapes`."""
    chance = random.Random(3)
    shapes = shapes or {}
    made = []
    for place in range(rounds):
        done = 50 * (place + 1)
        values = {
            column: shapes[column](done, done % crash_every) if column in shapes else 30.0
            for column in COLUMNS
        }
        values["daemon private"] += chance.gauss(120_000, 100)
        values["chromium private"] += chance.gauss(30_000, 500)
        jobs = {str(kind): 0 for kind in Kind} | {Kind.CONVERSION: done}
        name = "warm-up" if place < 10 else "mixed"
        made.append(Sample(place, int(place >= 10), name, done // crash_every, jobs, values))
    return made
