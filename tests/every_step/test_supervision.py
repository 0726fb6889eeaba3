"""A caller, an actor, a child or a supervisor ends at every step.

No caller hangs. A result means that the work was done once; a refusal means that it was not done,
or that its caller had left. A supervisor leaves no child behind and closes all mailboxes.
"""

from __future__ import annotations

from functools import partial

import pytest
import trio

from smartlinkd.supervision.actor import ActorGone, ActorRestarting, Mailbox
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Supervisor
from tests.every_step.driver import AtEveryStep
from tests.every_step.strike import Strike
from tests.supervision.conftest import do_nothing, note


class Counter:
    """A sum. An addition has checkpoints before it counts, and none between that and its result."""

    def __init__(self) -> None:
        self.total = 0
        self.begun = 0
        self.ended = 0

    async def add(self, number: int) -> int:
        self.begun += 1
        try:
            await trio.lowlevel.checkpoint()
            await trio.sleep(1)
            self.total += number
            return number
        finally:
            self.ended += 1


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("others", [0, 2])
def test_caller_leaves_at_every_step(at_every_step: AtEveryStep, at_once: int, others: int) -> None:
    async def scenario(strike: Strike) -> None:
        mailbox, counter = Mailbox[Counter]("counter", size=3), Counter()
        answers: list[object] = []
        others_answers: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(mailbox.serve, counter, at_once=at_once))
            async with trio.open_nursery() as callers:
                for _ in range(others):
                    callers.start_soon(note, others_answers, mailbox.ask(Counter.add, 1))
                with trio.CancelScope() as scope:
                    strike.arm(scope.cancel)
                    await note(answers, mailbox.ask(Counter.add, 10))
                strike.disarm()
            assert others_answers == [1] * others
            assert await mailbox.ask(Counter.add, 100) == 100
            nursery.cancel_scope.cancel()
        assert answers == ([] if scope.cancelled_caught else [10])
        assert counter.total - 100 - others in ({0, 10} if scope.cancelled_caught else {10})
        assert counter.begun == counter.ended
        assert mailbox.waiting == 0

    assert at_every_step(scenario) >= 5


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("restarts", [True, False])
def test_actor_is_cancelled_at_every_step(
    at_every_step: AtEveryStep, at_once: int, restarts: bool
) -> None:
    async def scenario(strike: Strike) -> None:
        mailbox, counter = Mailbox[Counter]("counter", size=3), Counter()
        answers: list[object] = []

        async def instances() -> None:
            with trio.CancelScope() as first:
                strike.arm(first.cancel)
                await mailbox.serve(counter, at_once=at_once)
            assert counter.begun == counter.ended
            if restarts:
                await mailbox.serve(counter, at_once=at_once)
            mailbox.close("it failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(instances)
            async with trio.open_nursery() as callers:
                for _ in range(3):
                    callers.start_soon(note, answers, mailbox.ask(Counter.add, 1))
            strike.disarm()
            nursery.cancel_scope.cancel()
        kinds = [type(answer) for answer in answers]
        gone = kinds.count(ActorGone)
        assert len(kinds) == 3
        assert set(kinds) <= {int, ActorRestarting, *[ActorGone] * (not restarts)}
        assert kinds.count(ActorRestarting) <= at_once
        assert counter.total == kinds.count(int)
        assert counter.begun == counter.ended == 3 - gone

    assert at_every_step(scenario) >= 10


class Part:
    """A child that starts and ends in several steps and serves a mailbox between them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mailbox = Mailbox[None](name, size=8)
        self.alive = 0
        self.most_alive = 0
        self.serving = False
        self._failure = trio.Event()
        self._stop = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._failure, self._stop = trio.Event(), trio.Event()
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        try:
            await trio.sleep(0.1)
            task_status.started()
            self.serving = True
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.mailbox.serve, None)
                nursery.start_soon(self._fail_when_told)
                await self._stop.wait()
                await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
        finally:
            self.serving = False
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
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


class Pair:
    """A base, a dependant, and the supervisor over them."""

    def __init__(self, strategy: Strategy) -> None:
        self.base = Part("base")
        self.dependant = Part("dependant")
        self.supervisor = Supervisor(
            "pair",
            [self.base.spec(), self.dependant.spec()],
            strategy=strategy,
            backoff=Backoff(first=1.0, jitter=0.0),
            intensity=Intensity(restarts=100),
        )

    async def live(self) -> None:
        """Start, fail the base, restart, and stop."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.supervisor.run)
            await trio.sleep(5)
            self.base.fail()
            await trio.sleep(5)
            self.supervisor.stop()

    async def ask_both(self) -> None:
        await self.base.mailbox.ask(do_nothing)
        await self.dependant.mailbox.ask(do_nothing)

    async def check_that_all_has_ended(self) -> None:
        for part in (self.base, self.dependant):
            assert part.alive == 0
            assert part.most_alive <= 1
            with pytest.raises(ActorGone):
                await part.mailbox.ask(do_nothing)
        for child in self.supervisor.snapshot():
            assert (child.state, child.next_retry) == (ChildState.DOWN, None)


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_supervisor_ends_at_every_step_and_can_run_again_when_cancelled(
    at_every_step: AtEveryStep, strategy: Strategy, how: str
) -> None:
    async def scenario(strike: Strike) -> None:
        pair = Pair(strategy)
        with trio.CancelScope() as scope, trio.fail_after(11):
            strike.arm(scope.cancel if how == "cancelled" else pair.supervisor.stop)
            await pair.live()
        strike.disarm()
        await pair.check_that_all_has_ended()
        if how == "stopped":
            return
        async with trio.open_nursery() as nursery:
            await nursery.start(pair.supervisor.run)
            await pair.ask_both()
            pair.supervisor.stop()
        await pair.check_that_all_has_ended()

    assert at_every_step(scenario) >= 40


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("part", ["base", "dependant"])
def test_child_fails_at_every_step_and_all_serve_again(
    at_every_step: AtEveryStep, strategy: Strategy, part: str
) -> None:
    async def scenario(strike: Strike) -> None:
        pair = Pair(strategy)
        async with trio.open_nursery() as nursery:
            await nursery.start(pair.supervisor.run)
            strike.arm(pair.base.fail if part == "base" else pair.dependant.fail)
            pair.base.fail()
            await trio.sleep(60)
            strike.disarm()
            assert pair.base.serving
            assert pair.dependant.serving
            await pair.ask_both()
            pair.supervisor.stop()
        await pair.check_that_all_has_ended()

    assert at_every_step(scenario) >= 10
