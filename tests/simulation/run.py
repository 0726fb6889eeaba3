"""One seed, simulated from its beginning to its end."""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from tests.faults.stage import WallClock
from tests.simulation.course import HOUR, OVERTIME, Course
from tests.simulation.log import Log, recorded_by
from tests.simulation.seeded import seeded
from tests.simulation.world import World

MEMORY = Path("/dev/shm")
"""A disk that takes no time, where there is one."""
TAIL = 60


@dataclass
class Outcome:
    """What came of a seed. `failures` are empty when every promise was kept."""

    seed: int
    hours: float
    digest: str
    seconds: float
    """Of processor time."""
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    tail: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        return f"./run simulate --seed {self.seed} --hours {self.hours:g}"

    def told(self, events: int) -> str:
        """What went wrong, and the last things that happened before."""
        return "\n".join([*self.tail[-events:], *self.failures, f"again: {self.replay}"])


def simulate(seed: int, hours: float) -> Outcome:
    """Simulate so many hours. Never raises for what the daemon does."""
    began = time.process_time()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(
        prefix="smartlinkd-world-", dir=MEMORY if MEMORY.is_dir() else None
    ) as folder:
        log = Log(Path(folder))
        try:
            with _nothing_unraised(failures):
                failures += _play(seed, hours, Path(folder), log)
        except Exception:  # noqa: BLE001 - it is this seed's, and others are to follow
            failures.append(traceback.format_exc())
    return Outcome(
        seed=seed,
        hours=hours,
        digest=log.digest,
        seconds=time.process_time() - began,
        failures=failures,
        counts=log.counts,
        tail=list(log.lines),
    )


def _play(seed: int, hours: float, folder: Path, log: Log) -> list[str]:
    wall = WallClock()
    with seeded(seed, wall.now) as patch:

        async def live() -> World:
            world = World(seed, folder, log, wall, patch)
            with recorded_by(world.records), trio.fail_after(hours * HOUR + OVERTIME):
                await Course(world, hours).run()
            return world

        world = trio.run(live, clock=MockClock(autojump_threshold=0))
    log.counts["simulated hours"] = round(hours)
    return world.failures


@contextmanager
def _nothing_unraised(failures: list[str]) -> Iterator[None]:
    """Errors that nobody can be told of, and warnings, are failures too."""

    def told(unraisable: Any) -> None:
        failures.append(f"unraisable: {unraisable.exc_value!r} in {unraisable.object!r}")

    before, sys.unraisablehook = sys.unraisablehook, told
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        sys.unraisablehook = before
