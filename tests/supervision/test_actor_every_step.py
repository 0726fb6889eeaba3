"""The asker, the actor or the mailbox ends at each single step of an ask, one step a run.

Whatever the step: nobody hangs, an answer means that the work was done once, and no answer means
that it was not done at all (or that its asker had left by then); and the actor goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import ActorGone, ActorRestarting, Mailbox

if TYPE_CHECKING:
    from tests.every_step.driver import AtEveryStep
    from tests.every_step.strike import Strike


class Counter:
    """Adds up. An addition takes time before it counts, and none between counting and answering."""

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


async def note(answers: list[object], ask: Awaitable[object]) -> None:
    try:
        answers.append(await ask)
    except Refused as refusal:
        answers.append(refusal)


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("company", [0, 1, 2])
def test_the_asker_leaves_at_every_step(
    at_every_step: AtEveryStep, at_once: int, company: int
) -> None:
    async def scenario(strike: Strike) -> None:
        mailbox, counter = Mailbox[Counter]("counter", size=3), Counter()
        answers: list[object] = []
        others: list[object] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: mailbox.serve(counter, at_once=at_once))
            async with trio.open_nursery() as askers:
                for _ in range(company):
                    askers.start_soon(note, others, mailbox.ask(Counter.add, 1))
                with trio.CancelScope() as scope:
                    strike.arm(scope.cancel)
                    await note(answers, mailbox.ask(Counter.add, 10))
                strike.disarm()
            assert others == [1] * company
            assert await mailbox.ask(Counter.add, 100) == 100
            nursery.cancel_scope.cancel()
        assert answers == ([] if scope.cancelled_caught else [10])
        assert counter.total - 100 - company in ({0, 10} if scope.cancelled_caught else {10})
        assert counter.begun == counter.ended
        assert mailbox.waiting == 0

    assert at_every_step(scenario) >= 5


@pytest.mark.parametrize("at_once", [1, 2])
def test_the_actor_is_cancelled_at_every_step(at_every_step: AtEveryStep, at_once: int) -> None:
    async def scenario(strike: Strike) -> None:
        mailbox, counter = Mailbox[Counter]("counter", size=3), Counter()
        answers: list[object] = []

        async def instances() -> None:
            with trio.CancelScope() as first:
                strike.arm(first.cancel)
                await mailbox.serve(counter, at_once=at_once)
            assert counter.begun == counter.ended
            await mailbox.serve(counter, at_once=at_once)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(instances)
            async with trio.open_nursery() as askers:
                for _ in range(3):
                    askers.start_soon(note, answers, mailbox.ask(Counter.add, 1))
            strike.disarm()
            nursery.cancel_scope.cancel()
        done = answers.count(1)
        assert counter.total == done
        restarting = [answer for answer in answers if isinstance(answer, ActorRestarting)]
        assert len(restarting) == 3 - done
        assert len(restarting) <= at_once

    assert at_every_step(scenario) >= 10


@pytest.mark.parametrize("at_once", [1, 2])
def test_the_actor_ends_for_good_at_every_step(at_every_step: AtEveryStep, at_once: int) -> None:
    async def scenario(strike: Strike) -> None:
        mailbox, counter = Mailbox[Counter]("counter", size=3), Counter()
        answers: list[object] = []

        async def only_incarnation() -> None:
            with trio.CancelScope() as scope:
                strike.arm(scope.cancel)
                await mailbox.serve(counter, at_once=at_once)
            mailbox.close("it failed")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(only_incarnation)
            async with trio.open_nursery() as askers:
                for _ in range(3):
                    askers.start_soon(note, answers, mailbox.ask(Counter.add, 1))
            strike.disarm()
            nursery.cancel_scope.cancel()
        kinds = [type(answer) for answer in answers]
        assert len(kinds) == 3
        assert set(kinds) <= {int, ActorRestarting, ActorGone}
        assert counter.total == kinds.count(int)
        assert counter.begun == counter.ended == 3 - kinds.count(ActorGone)

    assert at_every_step(scenario) >= 10
