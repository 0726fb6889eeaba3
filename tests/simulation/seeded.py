"""Make a simulation repeatable: random numbers, clocks, threads and trio's order follow the seed.

Each source is replaced by name, also in libraries, which take no clock and no generator as a
parameter. `test_seeds.py` compares the logs of two runs.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from tests.fakes.threads import threads_in_place
from tests.hygiene.scheduling import seed_order

COLLECTION_INTERVAL = 1800.0
"""Seconds between two collections of garbage."""


@contextmanager
def seeded(seed: int, wall: Callable[[], float]) -> Iterator[pytest.MonkeyPatch]:
    """Let everything in the block follow from `seed`. Yield a patch that ends with the block.

    `wall` is the machine's clock in Unix seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        seed_order(f"{seed} scheduler")
        _seed_randomness(patch, seed)
        _set_clocks(patch, wall)
        threads_in_place(patch)
        gc.collect()
        gc.freeze()  # collections need not look at existing objects
        gc.disable()
        try:
            yield patch
        finally:
            gc.unfreeze()
            gc.enable()


async def collect_garbage() -> None:
    """Collect garbage at fixed simulated times, since Python's own collector is off."""
    while True:
        await trio.sleep(COLLECTION_INTERVAL)
        gc.collect()


def random_for(seed: int, name: str) -> random.Random:
    """Return a generator of its own for `name`, so that other users do not change its numbers."""
    return random.Random(f"{seed} {name}")


def _seed_randomness(patch: pytest.MonkeyPatch, seed: int) -> None:
    entropy = random_for(seed, "entropy")
    numbers = count()

    class Unseeded(random.Random):
        """A `random.Random` that has a seed also when the caller gives none."""

        def __init__(self, given: Any = None) -> None:
            super().__init__(f"{seed} made {next(numbers)}" if given is None else given)

    patch.setattr(random, "Random", Unseeded)
    patch.setattr(os, "urandom", entropy.randbytes)
    for name in ("random", "getrandbits", "randbytes"):  # `secrets` uses them
        draw = getattr(entropy, name)
        patch.setattr(random.SystemRandom, name, lambda _, *size, draw=draw: draw(*size))


def _set_clocks(patch: pytest.MonkeyPatch, wall: Callable[[], float]) -> None:
    class Datetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(wall(), tz)

    clock = SimpleNamespace(monotonic=trio.current_time, time=wall)
    for name, module in list(sys.modules.items()):
        if name.startswith("smartlinkd."):
            if getattr(module, "datetime", None) is datetime:
                patch.setattr(module, "datetime", Datetime)
        elif not name.startswith("httpcore."):
            continue
        if getattr(getattr(module, "time", None), "__name__", "") == "time":
            patch.setattr(module, "time", clock)
