"""Simulate one seed."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from tests.faults.stage import WallClock
from tests.simulation.course import HOUR, OVERTIME, Course
from tests.simulation.log import Log, recording_in
from tests.simulation.seeded import seeded
from tests.simulation.world import World

MEMORY = Path("/dev/shm")
"""A folder in memory, which is used if it exists."""
TAIL = 60


@dataclass
class Outcome:
    """The outcome of a seed. `failures` are empty when every check has passed."""

    seed: int
    hours: float
    digest: str
    seconds: float
    """Seconds of processor time."""
    failures: list[str]
    counts: Counter[str]
    tail: list[str]

    def __str__(self) -> str:
        names = ("requests", "conversions", "kickoffs", "faults")
        counts = ", ".join(f"{self.counts[name]} {name}" for name in names)
        verdict = "FAILED" if self.failures else "fine"
        return f"seed {self.seed}: {verdict}; {counts}, {self.seconds:.1f} s, {self.digest[:12]}"

    @property
    def replay(self) -> str:
        return f"./run simulate --seed {self.seed} --hours {self.hours:g}"

    def description(self, events: int) -> str:
        """Return the last events, the failures and the command that repeats them."""
        return "\n".join([*self.tail[-events:], *self.failures, f"repeat: {self.replay}"])


def simulate(seed: int, hours: float) -> Outcome:
    """Simulate so many hours. Errors become failures of the outcome."""
    began = time.process_time()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(
        prefix="smartlinkd-world-", dir=MEMORY if MEMORY.is_dir() else None
    ) as folder:
        log = Log(Path(folder))
        try:
            with _collecting_unraisable_errors(failures):
                failures += _run(seed, hours, Path(folder), log)
        except Exception:  # noqa: BLE001 - other seeds follow
            failures.append(traceback.format_exc())
    seconds = time.process_time() - began
    return Outcome(seed, hours, log.digest, seconds, failures, log.counts, list(log.lines))


def _run(seed: int, hours: float, folder: Path, log: Log) -> list[str]:
    wall = WallClock()
    with seeded(seed, wall.now) as patch:

        async def run_world() -> World:
            world = World(seed, folder, log, wall, patch)
            with recording_in(world.records), trio.fail_after(hours * HOUR + OVERTIME):
                await Course(world, hours).run()
            return world

        return trio.run(run_world, clock=MockClock(autojump_threshold=0)).failures


@contextmanager
def _collecting_unraisable_errors(failures: list[str]) -> Iterator[None]:
    """Turn warnings into errors, and add errors that Python cannot raise to `failures`."""

    def note(unraisable: Any) -> None:
        failures.append(f"unraisable: {unraisable.exc_value!r} in {unraisable.object!r}")

    before, sys.unraisablehook = sys.unraisablehook, note
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        sys.unraisablehook = before
