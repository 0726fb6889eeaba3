"""What an asker gets: answers in order, an immediate no when full, its own deadline, an end."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Invalid, Refused, Unavailable
from smartlinkd.supervision.actor import ActorGone, ActorRestarting, Mailbox, Overloaded


class Desk:
    """Works on one thing for as long as it is told, and remembers it all."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.cut: list[str] = []
        self.at_work = 0
        self.most_at_work = 0

    async def work(self, thing: str, *, seconds: float = 0.0) -> str:
        self.begun.append(thing)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.cut.append(thing)
            raise
        finally:
            self.at_work -= 1
        self.done.append(thing)
        return thing.upper()

    async def at_once(self, thing: str) -> str:
        self.begun.append(thing)
        return thing

    async def refuse(self) -> None:
        raise Invalid("thing: no")

    def count_done(self, times: int = 1, *, add: int = 0) -> int:
        return len(self.done) * times + add

    def refuse_at_once(self) -> None:
        raise Invalid("thing: no")

    def fail_at_once(self) -> None:
        raise ZeroDivisionError


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def note(answers: list[object], ask: Awaitable[object]) -> None:
    """Append the answer, or the refusal that is the answer."""
    try:
        answers.append(await ask)
    except Refused as refusal:
        answers.append(refusal)


async def test_the_answer_is_what_the_method_returns(desk: Desk, nursery: trio.Nursery) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(mailbox.serve, desk)
    answer: str = await mailbox.ask(Desk.work, "a", seconds=0.0)
    assert answer == "A"


async def test_requests_are_answered_in_order_and_one_at_a_time(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []
    for thing in "abc":
        nursery.start_soon(note, answers, mailbox.ask(Desk.work, thing, seconds=1.0))
        await wait_all_tasks_blocked()
    nursery.start_soon(mailbox.serve, desk)
    await trio.sleep(10)
    assert answers == ["A", "B", "C"]
    assert desk.most_at_work == 1


async def test_several_hands_work_at_once_and_no_more_than_that(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []
    for thing in "abcde":
        nursery.start_soon(note, answers, mailbox.ask(Desk.work, thing, seconds=1.0))
    nursery.start_soon(lambda: mailbox.serve(desk, at_once=3))
    await trio.sleep(0.5)
    assert desk.most_at_work == 3
    assert mailbox.waiting == 2
    await trio.sleep(10)
    assert sorted(str(answer) for answer in answers) == ["A", "B", "C", "D", "E"]
    assert desk.most_at_work == 3


async def test_a_refusal_gives_the_hand_back(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(lambda: mailbox.serve(desk, at_once=2))
    for _ in range(3):
        with pytest.raises(Invalid):
            await mailbox.ask(Desk.refuse)
    assert await mailbox.ask(Desk.work, "a") == "A"


async def test_a_full_mailbox_says_so_at_once(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=2)
    answers: list[object] = []
    for thing in "ab":
        nursery.start_soon(note, answers, mailbox.ask(Desk.work, thing))
    await wait_all_tasks_blocked()
    nursery.start_soon(desk.at_once, "anything else")
    with pytest.raises(Overloaded) as refused:
        await mailbox.ask(Desk.work, "c")
    assert desk.begun == []  # nobody else had a turn, so it did not wait
    assert isinstance(refused.value, Unavailable)
    assert refused.value.retry_after == 1
    assert str(refused.value) == ("the desk part of the daemon has a full queue; try again shortly")
    assert mailbox.waiting == 2
    nursery.start_soon(mailbox.serve, desk)
    await trio.sleep(1)
    assert sorted(desk.begun) == ["a", "anything else", "b"]


async def test_the_size_counts_those_that_wait_and_not_those_in_hand(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=1)
    answers: list[object] = []
    nursery.start_soon(mailbox.serve, desk)
    for thing in "ab":
        await wait_all_tasks_blocked()
        nursery.start_soon(note, answers, mailbox.ask(Desk.work, thing, seconds=1.0))
    await wait_all_tasks_blocked()
    with pytest.raises(Overloaded):
        await mailbox.ask(Desk.work, "c")
    await trio.sleep(5)
    assert answers == ["A", "B"]


async def test_a_mailbox_without_room_answers_when_the_actor_is_free(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=0)
    nursery.start_soon(mailbox.serve, desk)
    await wait_all_tasks_blocked()
    nursery.start_soon(mailbox.ask, Desk.work, "a")
    await wait_all_tasks_blocked()
    assert desk.begun == ["a"]


async def test_those_that_have_gone_make_room_and_the_others_keep_their_order(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=3)
    answers: list[object] = []
    leaving = trio.CancelScope()

    async def leave() -> None:
        with leaving:
            await mailbox.ask(Desk.work, "b")

    nursery.start_soon(note, answers, mailbox.ask(Desk.work, "a"))
    await wait_all_tasks_blocked()
    nursery.start_soon(leave)
    await wait_all_tasks_blocked()
    nursery.start_soon(note, answers, mailbox.ask(Desk.work, "c"))
    await wait_all_tasks_blocked()
    leaving.cancel()
    await wait_all_tasks_blocked()
    nursery.start_soon(note, answers, mailbox.ask(Desk.work, "d"))
    await wait_all_tasks_blocked()
    nursery.start_soon(mailbox.serve, desk)
    await trio.sleep(1)
    assert answers == ["A", "C", "D"]
    assert desk.begun == ["a", "c", "d"]


async def test_a_deadline_includes_the_wait_in_the_mailbox(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []
    nursery.start_soon(mailbox.serve, desk)
    nursery.start_soon(note, answers, mailbox.ask(Desk.work, "a", seconds=10.0))
    await wait_all_tasks_blocked()
    with pytest.raises(trio.TooSlowError), trio.fail_after(3):
        await mailbox.ask(Desk.work, "b")
    assert trio.current_time() == pytest.approx(3.0)
    await trio.sleep(20)
    assert answers == ["A"]
    assert desk.begun == ["a"]


async def test_an_asker_that_goes_away_cancels_its_work_and_only_that(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(mailbox.serve, desk)
    with trio.move_on_after(3):
        await mailbox.ask(Desk.work, "a", seconds=10.0)
    assert await mailbox.ask(Desk.work, "b") == "B"
    assert trio.current_time() == pytest.approx(3.0)
    assert (desk.cut, desk.done) == (["a"], ["b"])


async def test_the_next_request_waits_until_cancelled_work_has_tidied_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async def tidy_slowly(order: list[str]) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(5)
            order.append("tidied")

    async def come_next(order: list[str]) -> None:
        order.append("next")

    mailbox = Mailbox[list[str]]("desk", size=8)
    order: list[str] = []
    nursery.start_soon(mailbox.serve, order)
    with trio.move_on_after(1):
        await mailbox.ask(tidy_slowly)
    await mailbox.ask(come_next)
    assert order == ["tidied", "next"]


async def test_one_that_is_already_cancelled_asks_nothing() -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.ask(Desk.at_once, "a")
    assert scope.cancelled_caught
    assert mailbox.waiting == 0


async def test_closing_fails_those_that_wait_and_those_that_ask_later(
    nursery: trio.Nursery,
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []
    for thing in "ab":
        nursery.start_soon(note, answers, mailbox.ask(Desk.work, thing))
    await wait_all_tasks_blocked()
    mailbox.close("it has done its work")
    await wait_all_tasks_blocked()
    await note(answers, mailbox.ask(Desk.work, "c"))
    assert [type(answer) for answer in answers] == [ActorGone] * 3
    assert {str(answer) for answer in answers} == {
        "the desk part of the daemon has ended: it has done its work"
    }
    assert {answer.retry_after for answer in answers if isinstance(answer, ActorGone)} == {5}
    assert mailbox.waiting == 0


async def test_closing_leaves_the_one_in_hand_to_whoever_works_on_it(
    desk: Desk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []
    nursery.start_soon(mailbox.serve, desk)
    nursery.start_soon(note, answers, mailbox.ask(Desk.work, "a", seconds=1.0))
    await wait_all_tasks_blocked()
    mailbox.close("it has done its work")
    await trio.sleep(5)
    assert answers == ["A"]


async def test_an_incarnation_opens_a_closed_mailbox(desk: Desk, nursery: trio.Nursery) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    mailbox.close("its supervisor is restarting")
    nursery.start_soon(mailbox.serve, desk)
    await wait_all_tasks_blocked()
    assert await mailbox.ask(Desk.work, "a") == "A"


# Glances


async def test_a_peek_is_answered_at_once_whatever_is_in_hand(
    desk: Desk, nursery: trio.Nursery
) -> None:
    mailbox = Mailbox[Desk]("desk", size=1)
    nursery.start_soon(mailbox.serve, desk)
    nursery.start_soon(mailbox.ask, Desk.work, "a")
    await wait_all_tasks_blocked()
    assert await mailbox.peek(Desk.count_done) == 1
    for thing in "bc":
        nursery.start_soon(partial(mailbox.ask, Desk.work, thing, seconds=3600))
        await wait_all_tasks_blocked()
    with pytest.raises(Overloaded):
        await mailbox.ask(Desk.work, "d")
    assert await mailbox.peek(Desk.count_done, 3, add=10) == 13


async def test_a_peek_waits_for_the_next_incarnation(desk: Desk, nursery: trio.Nursery) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []
    desk.done = ["a"]
    nursery.start_soon(note, answers, mailbox.peek(Desk.count_done, 3, add=10))
    await wait_all_tasks_blocked()
    assert (answers, mailbox.waiting) == ([], 1)
    async with trio.open_nursery() as instance:
        instance.start_soon(mailbox.serve, desk)
        await wait_all_tasks_blocked()
        instance.cancel_scope.cancel()
    assert answers == [13]
    nursery.start_soon(note, answers, mailbox.peek(Desk.count_done))
    await wait_all_tasks_blocked()
    assert (answers, mailbox.waiting) == ([13], 1)


async def test_what_refuses_a_peek_is_the_askers_error(desk: Desk, nursery: trio.Nursery) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(mailbox.serve, desk)
    await wait_all_tasks_blocked()
    with pytest.raises(Invalid, match="thing: no"):
        await mailbox.peek(Desk.refuse_at_once)
    assert await mailbox.peek(Desk.count_done) == 0


async def test_the_actor_ends_by_a_fault_in_a_peek(desk: Desk) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    answers: list[object] = []

    async def fall() -> None:
        with pytest.raises(ZeroDivisionError):
            await mailbox.serve(desk)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fall)
        await wait_all_tasks_blocked()
        await note(answers, mailbox.peek(Desk.fail_at_once))
    assert [type(answer) for answer in answers] == [ActorRestarting]


async def test_nobody_glances_at_one_that_is_gone(desk: Desk, nursery: trio.Nursery) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(mailbox.serve, desk)
    nursery.start_soon(partial(mailbox.ask, Desk.work, "a", seconds=3600))
    await wait_all_tasks_blocked()
    mailbox.close("it has done its work")
    with pytest.raises(ActorGone):
        await mailbox.peek(Desk.count_done)


async def test_one_that_is_already_cancelled_does_not_peek(
    desk: Desk, nursery: trio.Nursery
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(mailbox.serve, desk)
    await wait_all_tasks_blocked()
    with trio.CancelScope() as scope:
        scope.cancel()
        await mailbox.peek(Desk.count_done)
    assert scope.cancelled_caught


def test_the_kinds_of_no_are_all_answers_to_try_again_later() -> None:
    assert issubclass(Overloaded, Unavailable)
    assert issubclass(ActorRestarting, Unavailable)
    assert issubclass(ActorGone, Unavailable)
