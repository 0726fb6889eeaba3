"""How work on a request may end, and who hears of it: the asker, the actor, or both."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Invalid, NotAllowed, Refused
from smartlinkd.supervision.actor import ActorRestarting, Mailbox


class Desk:
    def __init__(self) -> None:
        self.done = 0

    async def work(self, seconds: float = 0.0) -> int:
        await trio.sleep(seconds)
        self.done += 1
        return self.done

    async def fail(self, *errors: BaseException) -> None:
        """One error comes as it is, several come out of a nursery, each after a moment."""
        await trio.sleep(1)
        if len(errors) == 1:
            raise errors[0]
        async with trio.open_nursery() as nursery:
            for error in errors:
                nursery.start_soon(self._fail_at_once, error)

    async def fail_deep(self, *errors: BaseException) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fail, *errors)

    async def _fail_at_once(self, error: BaseException) -> None:
        raise error


class Incarnation:
    """Runs `serve` once and keeps what ended it."""

    def __init__(self, mailbox: Mailbox[Desk], *, at_once: int = 1) -> None:
        self.scope = trio.CancelScope()
        self.end: BaseException | None = None
        self._mailbox = mailbox
        self._at_once = at_once

    async def run(self) -> None:
        try:
            with self.scope:
                await self._mailbox.serve(Desk(), at_once=self._at_once)
        except BaseException as error:  # noqa: BLE001 - a test looks at it
            self.end = error


@pytest.fixture
def mailbox() -> Mailbox[Desk]:
    return Mailbox[Desk]("desk", size=8)


@pytest.fixture
def actor(mailbox: Mailbox[Desk], nursery: trio.Nursery) -> Incarnation:
    instance = Incarnation(mailbox)
    nursery.start_soon(instance.run)
    return instance


async def note(answers: list[object], ask: Awaitable[object]) -> None:
    try:
        answers.append(await ask)
    except Refused as refusal:
        answers.append(refusal)


async def test_a_refusal_is_the_askers_and_the_actor_goes_on(
    mailbox: Mailbox[Desk], actor: Incarnation, autojump_clock: MockClock
) -> None:
    await mailbox.ask(Desk.work)
    refusal = Invalid("thing: no")
    with pytest.raises(Invalid) as refused:
        await mailbox.ask(Desk.fail, refusal)
    assert refused.value is refusal
    assert await mailbox.ask(Desk.work) == 2  # the same state
    assert actor.end is None


async def test_a_refusal_out_of_nested_nurseries_arrives_bare(
    mailbox: Mailbox[Desk], actor: Incarnation, autojump_clock: MockClock
) -> None:
    refusal = Invalid("thing: no")
    with pytest.raises(Invalid) as refused:
        await mailbox.ask(Desk.fail_deep, refusal)
    assert refused.value is refusal
    assert await mailbox.ask(Desk.work) == 1
    assert actor.end is None


async def test_of_several_refusals_at_once_the_asker_gets_one(
    mailbox: Mailbox[Desk], actor: Incarnation, autojump_clock: MockClock
) -> None:
    with pytest.raises((Invalid, NotAllowed)):
        await mailbox.ask(Desk.fail_deep, Invalid("thing: no"), NotAllowed("thing: no"))
    assert await mailbox.ask(Desk.work) == 1


async def test_a_refusal_beside_a_crash_is_the_askers_and_the_crash_the_actors(
    mailbox: Mailbox[Desk], actor: Incarnation, autojump_clock: MockClock
) -> None:
    with pytest.raises(Invalid):
        await mailbox.ask(Desk.fail, Invalid("thing: no"), ValueError("broken"))
    await wait_all_tasks_blocked()
    assert isinstance(actor.end, ExceptionGroup)
    assert [repr(error) for error in actor.end.exceptions] == [repr(ValueError("broken"))]


@pytest.mark.parametrize("errors", [(ValueError("broken"),), (ValueError("a"), ValueError("b"))])
async def test_a_crash_ends_the_incarnation_and_its_asker_may_try_again(
    mailbox: Mailbox[Desk],
    actor: Incarnation,
    errors: tuple[Exception, ...],
    autojump_clock: MockClock,
) -> None:
    with pytest.raises(ActorRestarting) as refused:
        await mailbox.ask(Desk.fail, *errors)
    assert refused.value.retry_after == 1
    assert str(refused.value) == (
        "the desk part of the daemon restarted while it worked on this; try again"
    )
    await wait_all_tasks_blocked()
    if isinstance(actor.end, ExceptionGroup):
        assert set(actor.end.exceptions) == set(errors)
    else:
        assert actor.end is errors[0]


async def test_those_that_wait_survive_a_crash(
    mailbox: Mailbox[Desk], actor: Incarnation, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    answers: list[object] = []
    for method in (Desk.fail, Desk.work, Desk.work):
        arguments = (ValueError("broken"),) if method is Desk.fail else ()
        nursery.start_soon(note, answers, mailbox.ask(method, *arguments))
        await wait_all_tasks_blocked()
    await trio.sleep(5)
    assert [type(answer) for answer in answers] == [ActorRestarting]
    assert mailbox.waiting == 2
    nursery.start_soon(Incarnation(mailbox).run)
    await trio.sleep(1)
    assert answers[1:] == [1, 2]  # the state of the new instance


async def test_a_crash_ends_all_that_is_in_hand(
    mailbox: Mailbox[Desk], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    instance = Incarnation(mailbox, at_once=2)
    nursery.start_soon(instance.run)
    answers: list[object] = []
    nursery.start_soon(note, answers, mailbox.ask(Desk.work, 10.0))
    nursery.start_soon(note, answers, mailbox.ask(Desk.fail, ValueError("broken")))
    await wait_all_tasks_blocked()
    nursery.start_soon(note, answers, mailbox.ask(Desk.work))
    await trio.sleep(2)
    assert [type(answer) for answer in answers] == [ActorRestarting, ActorRestarting]
    assert mailbox.waiting == 1
    assert isinstance(instance.end, ExceptionGroup)
    assert instance.end.subgroup(ValueError) is not None


@pytest.mark.parametrize("at_once", [1, 2])
async def test_cancelling_the_actor_answers_what_it_has_in_hand(
    mailbox: Mailbox[Desk], nursery: trio.Nursery, autojump_clock: MockClock, at_once: int
) -> None:
    instance = Incarnation(mailbox, at_once=at_once)
    nursery.start_soon(instance.run)
    answers: list[object] = []
    for _ in range(at_once):
        nursery.start_soon(note, answers, mailbox.ask(Desk.work, 10.0))
    await trio.sleep(1)
    instance.scope.cancel()
    await wait_all_tasks_blocked()
    assert [type(answer) for answer in answers] == [ActorRestarting] * at_once
    assert instance.scope.cancelled_caught


async def test_cancelling_the_actor_between_requests_loses_none(
    mailbox: Mailbox[Desk], actor: Incarnation, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await wait_all_tasks_blocked()
    actor.scope.cancel()
    await wait_all_tasks_blocked()
    answers: list[object] = []
    nursery.start_soon(note, answers, mailbox.ask(Desk.work))
    nursery.start_soon(Incarnation(mailbox).run)
    await trio.sleep(1)
    assert answers == [1]


@pytest.mark.parametrize("beside", [(), (Invalid("thing: no"),)])
async def test_an_interrupt_from_the_keyboard_ends_more_than_a_request(
    mailbox: Mailbox[Desk],
    actor: Incarnation,
    beside: tuple[Exception, ...],
    autojump_clock: MockClock,
) -> None:
    with pytest.raises(Refused):
        await mailbox.ask(Desk.fail, KeyboardInterrupt(), *beside)
    await wait_all_tasks_blocked()
    left = actor.end.exceptions[0] if isinstance(actor.end, BaseExceptionGroup) else actor.end
    assert isinstance(left, KeyboardInterrupt)


async def test_a_refusal_of_work_that_its_asker_left_disturbs_nobody(
    mailbox: Mailbox[Desk], actor: Incarnation, autojump_clock: MockClock
) -> None:
    async def refuse_when_cancelled(desk: Desk) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Invalid("thing: no")

    with trio.move_on_after(1) as given_up:
        await mailbox.ask(refuse_when_cancelled)
    assert given_up.cancelled_caught
    assert await mailbox.ask(Desk.work) == 1
    assert actor.end is None


async def test_a_crash_of_work_that_its_asker_left_still_ends_the_incarnation(
    mailbox: Mailbox[Desk], actor: Incarnation, autojump_clock: MockClock
) -> None:
    async def crash_when_cancelled(desk: Desk) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("broken")

    with trio.move_on_after(1) as given_up:
        await mailbox.ask(crash_when_cancelled)
    await wait_all_tasks_blocked()
    assert given_up.cancelled_caught
    assert isinstance(actor.end, ValueError)
