"""The driver itself: it strikes at each step once, ends, finds what is wrong and says where."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from tests.every_step.driver import SEEDS, AtEveryStep
from tests.every_step.strike import Strike
from tests.faults.summary import strikes, struck

STEPS = 5


async def take_steps(log: list[int]) -> None:
    for step in range(STEPS):
        await trio.lowlevel.checkpoint()
        log.append(step)


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


@pytest.fixture
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> AtEveryStep:
    """One whose strikes are not counted with those of real scenarios."""
    return AtEveryStep(random.Random(7), lambda *_: None, monkeypatch)


def test_it_strikes_at_each_step_and_ends(at_every_step: AtEveryStep) -> None:
    seen: list[int] = []

    async def scenario(strike: Strike) -> None:
        log: list[int] = []
        with trio.CancelScope() as scope:
            strike.arm(scope.cancel)
            await take_steps(log)
        strike.disarm()
        await take_steps([])  # this is not struck any more
        seen.append(len(log))

    # Trio has a task of its own beside, for its clock, which takes a step or two.
    assert at_every_step(scenario) >= STEPS
    assert set(seen) == {*range(STEPS), STEPS}
    assert seen.count(STEPS) == SEEDS


@pytest.mark.parametrize("everything", [True, False])
def test_it_strikes_at_some_steps_of_one_world(
    at_every_step: AtEveryStep, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    monkeypatch.setenv("EVERY_STEP", "all" if everything else "")
    places: list[int] = []

    async def scenario(strike: Strike, _: None) -> None:
        strike.arm(lambda: places.append(strike.at))
        await take_steps([])
        await take_steps([])
        strike.disarm()

    clock = MockClock(autojump_threshold=0)
    assert at_every_step.within(nothing, scenario, stride=3, clock=clock) == places[-1]
    stride = 1 if everything else 3
    assert places == list(range(places[0], 2 * STEPS + 1, stride))
    assert 1 <= places[0] <= stride


class Place:
    """One that a careless holder keeps when it is cancelled."""

    def __init__(self) -> None:
        self.free = True

    @contextmanager
    def held(self, *, careless: bool) -> Iterator[None]:
        assert self.free
        self.free = False
        if careless:
            yield
            self.free = True
        else:
            try:
                yield
            finally:
                self.free = True


@pytest.mark.parametrize("careless", [False, True])
def test_it_finds_what_is_not_given_back_and_says_where(
    at_every_step: AtEveryStep, careless: bool
) -> None:
    async def scenario(strike: Strike, place: Place) -> None:
        with trio.CancelScope() as scope:
            strike.arm(scope.cancel)
            await trio.lowlevel.checkpoint()
            with place.held(careless=careless):
                await trio.lowlevel.checkpoint()
        strike.disarm()
        assert place.free

    @asynccontextmanager
    async def world() -> AsyncIterator[Place]:
        yield Place()

    clock = MockClock(autojump_threshold=0)
    if not careless:
        assert at_every_step.within(world, scenario, clock=clock) == 2
        return
    with pytest.raises(AssertionError) as found:
        at_every_step.within(world, scenario, clock=clock)
    assert found.value.__notes__ == ["strike at step 2, seed 0"]


def test_what_hangs_fails(at_every_step: AtEveryStep) -> None:
    async def scenario(strike: Strike) -> None:
        await trio.sleep_forever()

    with pytest.raises(trio.TooSlowError):
        at_every_step(scenario)


def test_the_summary_counts_scenarios_and_strikes() -> None:
    def report(number: int, *, passed: bool) -> SimpleNamespace:
        told = [("cancellation checkpoints", number), ("another", 7)]
        return SimpleNamespace(user_properties=told, passed=passed, nodeid=f"test_{number}")

    reports = [report(40, passed=True), report(2, passed=False), SimpleNamespace(passed=True)]
    assert strikes(reports) == "cancellation: 2 scenarios, 42 checkpoints, 1 failing"
    assert struck(reports)[1].split() == ["2", "checkpoints", "of", "test_2"]
    assert strikes([]) is None
