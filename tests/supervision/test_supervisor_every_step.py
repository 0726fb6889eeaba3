"""The world ends at each single step of a supervisor's life, one step a run.

The life has all of it: two children start, the base fails, its dependant is stopped, both start
again, and all is stopped. It is cancelled, told to stop, or loses a child at the k-th step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.supervision.actor import ActorGone, Mailbox
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.every_step.driver import AtEveryStep
    from tests.every_step.strike import Strike

EVEN = Backoff(first=1.0, jitter=0.0)
OFTEN = Intensity(restarts=100)


class Part:
    """A child on a base: it starts and ends in several steps, and serves a mailbox between.

    `lonely` counts the steps that it served without its base.
    """

    def __init__(self, name: str, base: Part | None = None) -> None:
        self.name = name
        self.mailbox = Mailbox[None](name, size=8)
        self.alive = 0
        self.most_alive = 0
        self.serving = False
        self.starts = 0
        self.ends: list[str] = []
        self._base = base
        self._failure = trio.Event()
        self._stop = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._failure, self._stop = trio.Event(), trio.Event()
        self.starts += 1
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        try:
            await trio.sleep(0.1)
            assert self._base is None or self._base.starts > 0
            task_status.started()
            self.serving = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.mailbox.serve, None)
                nursery.start_soon(self._fail_when_told)
                await self._stop.wait()
                await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
            self.ends.append("stopped")
        finally:
            self.serving = False
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()  # what it owns takes a moment to go away
            self.alive -= 1

    def fail(self) -> None:
        self._failure.set()

    def stop(self) -> None:
        self._stop.set()

    async def _fail_when_told(self) -> None:
        await self._failure.wait()
        raise ValueError("broken")

    def spec(self) -> ChildSpec:
        return ChildSpec(self.name, self.run, stop=self.stop, mailbox=self.mailbox)


class House:
    """A base, a dependant, and the supervisor over them."""

    def __init__(self, strategy: Strategy) -> None:
        self.base = Part("base")
        self.dependant = Part("dependant", self.base)
        self.supervisor = Supervisor(
            "house",
            [self.base.spec(), self.dependant.spec()],
            strategy=strategy,
            backoff=EVEN,
            intensity=OFTEN,
        )

    async def live(self) -> None:
        """Up, a failure of the base, up again, and down."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.supervisor.run)
            await trio.sleep(5)
            self.base.fail()
            await trio.sleep(5)
            self.supervisor.stop()

    async def check_that_all_has_ended(self) -> None:
        for part in (self.base, self.dependant):
            assert part.alive == 0
            assert part.most_alive <= 1
            with pytest.raises(ActorGone):
                await part.mailbox.ask(do_nothing)
        for child in self.supervisor.snapshot():
            assert (child.state, child.next_retry) == (ChildState.DOWN, None)


async def do_nothing(state: None) -> None:
    pass


@pytest.fixture(params=list(Strategy))
def house(request: pytest.FixtureRequest) -> Callable[[], House]:
    def build() -> House:
        return House(request.param)

    return build


def test_cancelled_at_every_step(at_every_step: AtEveryStep, house: Callable[[], House]) -> None:
    async def scenario(strike: Strike) -> None:
        here = house()
        with trio.CancelScope() as scope:
            strike.arm(scope.cancel)
            await here.live()
        strike.disarm()
        await here.check_that_all_has_ended()

    assert at_every_step(scenario) >= 40


def test_told_to_stop_at_every_step(at_every_step: AtEveryStep, house: Callable[[], House]) -> None:
    async def scenario(strike: Strike) -> None:
        here = house()
        strike.arm(here.supervisor.stop)
        with trio.fail_after(11):
            await here.live()
        strike.disarm()
        await here.check_that_all_has_ended()

    assert at_every_step(scenario) >= 40


def test_run_again_after_the_end_at_every_step(
    at_every_step: AtEveryStep, house: Callable[[], House]
) -> None:
    async def scenario(strike: Strike) -> None:
        here = house()
        with trio.CancelScope() as scope:
            strike.arm(scope.cancel)
            await here.live()
        strike.disarm()
        async with trio.open_nursery() as nursery:
            await nursery.start(here.supervisor.run)
            await here.base.mailbox.ask(do_nothing)
            await here.dependant.mailbox.ask(do_nothing)
            here.supervisor.stop()
        await here.check_that_all_has_ended()

    assert at_every_step(scenario) >= 40


@pytest.mark.parametrize("part", ["base", "dependant"])
def test_a_child_fails_at_every_step(
    at_every_step: AtEveryStep, house: Callable[[], House], part: str
) -> None:
    async def scenario(strike: Strike) -> None:
        here = house()

        def fail() -> None:
            (here.base if part == "base" else here.dependant).fail()

        async with trio.open_nursery() as nursery:
            await nursery.start(here.supervisor.run)
            strike.arm(fail)
            here.base.fail()
            await trio.sleep(60)
            strike.disarm()
            assert here.base.serving
            assert here.dependant.serving
            await here.base.mailbox.ask(do_nothing)
            await here.dependant.mailbox.ask(do_nothing)
            here.supervisor.stop()
        await here.check_that_all_has_ended()

    assert at_every_step(scenario) >= 10


def test_an_asker_is_answered_whatever_fails_at_every_step(
    at_every_step: AtEveryStep, house: Callable[[], House]
) -> None:
    async def scenario(strike: Strike) -> None:
        here = house()
        answers: list[str] = []

        async def ask_on() -> None:
            for _ in range(20):
                answers.append(await here.dependant.mailbox.ask(answer))
                await trio.sleep(0.5)

        async with trio.open_nursery() as nursery:
            await nursery.start(here.supervisor.run)
            strike.arm(here.base.fail)
            await bounded(ask_on)
            strike.disarm()
            here.supervisor.stop()
        assert answers == ["yes"] * 20

    assert at_every_step(scenario) >= 50


async def bounded(work: Callable[[], Awaitable[None]]) -> None:
    with trio.fail_after(60):
        await work()


async def answer(state: None) -> str:
    return "yes"
