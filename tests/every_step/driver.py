"""Runs a scenario repeatedly, each time struck one step later, until one ends before its strike.

`AtEveryStep` has an example. trio's order of ready tasks is seeded; the note of a failure has step
and seed. With `stride=7` only every seventh step is struck, from a first one that depends on
`--randomly-seed`; with `EVERY_STEP=all` every step is.
"""

from __future__ import annotations

import os
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from itertools import count
from typing import TypeVar

import pytest
import trio
from trio.testing import MockClock

from tests.every_step.strike import Strike
from tests.hygiene.scheduling import seed_order

HANG = 100_000.0
"""Seconds on a mock clock after which a scenario fails as hanging."""
REAL_HANG = 20.0
"""Seconds on the real clock after which a scenario fails as hanging."""
SEEDS = 4
"""Orders in which trio steps the tasks that are ready at the same time."""

W = TypeVar("W")
Scenario = Callable[[Strike], Awaitable[None]]


class AtEveryStep:
    """Calls a scenario and returns the last step that was struck, so that a test can check it.

    def test_client_leaves(at_every_step: AtEveryStep) -> None:
        async def scenario(strike: Strike) -> None:
            with trio.CancelScope() as scope:
                strike.arm(scope.cancel)
                await tested_function()
            strike.disarm()
            assert nothing_is_left()

        assert at_every_step(scenario) > 20
    """

    def __init__(self, generator: random.Random) -> None:
        self._generator = generator

    def __call__(self, scenario: Scenario) -> int:
        async def alone(strike: Strike, _: None) -> None:
            await scenario(strike)

        clock = MockClock(autojump_threshold=0)
        return self.within(nullcontext, alone, seeds=SEEDS, clock=clock)

    def within(
        self,
        world: Callable[[], AbstractAsyncContextManager[W]],
        scenario: Callable[[Strike, W], Awaitable[None]],
        *,
        stride: int = 1,
        seeds: int = 1,
        clock: MockClock | None = None,
    ) -> int:
        """Run all scenarios in one world, so that what each leaves behind adds up.

        Without a `clock` the real one is used.
        """
        hang = REAL_HANG if clock is None else HANG

        async def run() -> int:
            async with world() as here:
                return min([await in_order(seed, here) for seed in range(seeds)])

        async def in_order(seed: int, here: W) -> int:
            last = 0
            for at in self._struck_steps(stride):
                with self._strike(at, seed) as strike:
                    trio.lowlevel.add_instrument(strike)
                    with trio.fail_after(hang):
                        await scenario(strike, here)
                    trio.lowlevel.remove_instrument(strike)
                if not strike.happened:
                    break
                last = at
            return last

        return trio.run(run, clock=clock)

    @contextmanager
    def _strike(self, at: int, seed: int) -> Iterator[Strike]:
        seed_order(f"{seed} {at}")
        try:
            yield Strike(at)
        except BaseException as error:
            error.add_note(f"strike at step {at}, seed {seed}")
            raise

    def _struck_steps(self, stride: int) -> Iterator[int]:
        if os.environ.get("EVERY_STEP") == "all":
            return count(1)
        return count(self._generator.randint(1, stride), stride)


@pytest.fixture
def at_every_step(request: pytest.FixtureRequest) -> AtEveryStep:
    seed = getattr(request.config.option, "randomly_seed", 0)
    return AtEveryStep(random.Random(f"{seed} {request.node.nodeid}"))
