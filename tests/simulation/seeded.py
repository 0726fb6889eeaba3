"""One seed decides everything: whoever asks for a random number, an hour or a thread asks here.

The problem: a simulated day that failed must fail again. What makes two runs differ is spread over
Python, trio and the libraries: the order of tasks, keys and ids out of the kernel, clocks of the
machine, threads. The choice: each such source is replaced at its own name, while a world runs, by
one that follows from the seed. What is left is checked, and not believed: `test_same_again.py` runs
seeds twice, also in processes that hash differently, and holds the two logs together.

Rejected: to hand each part its own dice and clocks. Most parts take such parameters, but libraries
do not, and one that is forgotten is found only by days that cannot be played again.
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

AFRESH = 1800.0
"""Seconds between two collections of garbage: that of cycles, at moments of our choosing."""


@contextmanager
def seeded(seed: int, wall: Callable[[], float]) -> Iterator[pytest.MonkeyPatch]:
    """Everything that happens in the block follows from `seed`.

    `wall` is the machine's clock in Unix seconds. The patch that is given ends with the block.
    """
    with pytest.MonkeyPatch.context() as patch:
        seed_order(f"{seed} scheduler")
        _seed_randomness(patch, seed)
        _set_clocks(patch, wall)
        threads_in_place(patch)
        had = gc.isenabled()
        gc.collect()
        gc.freeze()  # what is there by now need not be looked at again
        gc.disable()
        try:
            yield patch
        finally:
            gc.unfreeze()
            if had:
                gc.enable()


async def collect_garbage() -> None:
    """Run beside a world, which has no other collector."""
    while True:
        await trio.sleep(AFRESH)
        gc.collect()


def dice(seed: int, whose: str) -> random.Random:
    """Dice of somebody's own: what others throw does not change what comes."""
    return random.Random(f"{seed} {whose}")


def _seed_randomness(patch: pytest.MonkeyPatch, seed: int) -> None:
    entropy = dice(seed, "entropy")
    numbers = count()

    class Unseeded(random.Random):
        """What `random.Random()` is made into when it is given no seed."""

        def __init__(self, given: Any = None) -> None:
            super().__init__(f"{seed} made {next(numbers)}" if given is None else given)

    patch.setattr(random, "Random", Unseeded)
    patch.setattr(os, "urandom", entropy.randbytes)
    for name in ("random", "getrandbits", "randbytes"):  # where `secrets` has it from
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
