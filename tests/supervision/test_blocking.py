"""An actor whose work blocks: a thread does it, all that waits in one visit, and no asker hangs."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest
import trio
import trio.lowlevel
from trio.testing import wait_all_tasks_blocked

from smartlinkd.errors import Invalid
from smartlinkd.logs import LogContext, bind_log_contexts
from smartlinkd.logs.context import current_log_contexts
from smartlinkd.supervision.actor import ActorGone, ActorRestarting
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.threads import NoThread
from tests.shortage import Shortage
from tests.supervision.test_mailbox import note

MOST = 3


class Shelf:
    """Notes what is put onto it, and with what else in one visit."""

    def __init__(self) -> None:
        self.visits: list[list[str]] = []
        self.entered = 0
        self.threads: set[int] = set()
        self.for_whom: list[Sequence[LogContext]] = []
        self.door = threading.Event()
        self.door.set()
        self._now: list[str] | None = None

    def together(self, tasks: Sequence[Callable[[Shelf], object]]) -> list[object]:
        self._now = []
        try:
            done = [task(self) for task in tasks]
            self.visits.append(self._now)
        finally:
            self._now = None
        return done

    def put(self, thing: str) -> str:
        self.entered += 1
        assert self.door.wait(10)
        if self._now is None:
            self.visits.append([thing])
        else:
            self._now.append(thing)
        self.threads.add(threading.get_ident())
        self.for_whom.append(tuple(current_log_contexts()))
        return thing.upper()


def put(thing: str) -> Callable[[Shelf], str]:
    return lambda shelf: shelf.put(thing)


def refuse(_: Shelf) -> None:
    raise Invalid("thing: no")


def fail(_: Shelf) -> None:
    raise ZeroDivisionError


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shelf = Shelf()
    yield shelf
    shelf.door.set()


@pytest.fixture
def mailbox() -> BlockingMailbox[Shelf]:
    return BlockingMailbox[Shelf]("shelf", size=8)


@contextmanager
def closed_door(shelf: Shelf) -> Iterator[None]:
    """Who visits in here, stays until its end."""
    shelf.door.clear()
    try:
        yield
    finally:
        shelf.door.set()


async def until_entered(shelf: Shelf) -> None:
    with trio.fail_after(10):
        while not shelf.entered:
            await trio.lowlevel.checkpoint()


async def serve(mailbox: BlockingMailbox[Shelf], shelf: Shelf) -> None:
    await mailbox.serve(shelf, Shelf.together, most=MOST)


async def test_the_answer_is_what_the_work_returns(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    nursery.start_soon(serve, mailbox, shelf)

    answer: str = await mailbox.ask(put("a"))

    assert answer == "A"
    assert threading.get_ident() not in shelf.threads


async def test_all_that_wait_are_done_in_one_visit_in_their_order_and_no_more_than_that(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    nursery.start_soon(serve, mailbox, shelf)
    async with trio.open_nursery() as asking:
        with closed_door(shelf):
            asking.start_soon(note, answers, mailbox.ask(put("a")))
            await until_entered(shelf)
            for thing in "bcdef":
                asking.start_soon(note, answers, mailbox.ask(put(thing)))
                await wait_all_tasks_blocked()

    assert shelf.visits == [["a"], ["b", "c", "d"], ["e", "f"]]
    assert sorted(map(str, answers)) == ["A", "B", "C", "D", "E", "F"]


async def test_with_no_thread_to_be_had_all_that_wait_are_refused_and_the_actor_lives_on(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery, no_thread: Shortage
) -> None:
    answers: list[object] = []
    with no_thread():
        async with trio.open_nursery() as asking:
            for thing in "ab":
                asking.start_soon(note, answers, mailbox.ask(put(thing)))
            nursery.start_soon(serve, mailbox, shelf)

    assert [type(each) for each in answers] == [NoThread, NoThread]
    assert await mailbox.ask(put("c")) == "C"
    assert shelf.visits == [["c"]]


async def test_who_has_all_the_other_threads_does_not_hold_it_up(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    others = trio.to_thread.current_default_thread_limiter()
    answers: list[object] = []
    for _ in range(int(others.total_tokens)):
        others.acquire_on_behalf_of_nowait(object())
    for thing in "ab":
        nursery.start_soon(note, answers, mailbox.ask(put(thing)))
        await wait_all_tasks_blocked()
    nursery.start_soon(serve, mailbox, shelf)

    with trio.fail_after(10):
        assert await mailbox.ask(put("c")) == "C"
        assert await mailbox.ask(put("d")) == "D"
    assert shelf.visits == [["a", "b", "c"], ["d"]]


async def test_a_refusal_is_its_askers_alone_and_each_is_done_in_a_visit_of_its_own(
    mailbox: BlockingMailbox[Shelf],
    shelf: Shelf,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers: list[object] = []
    caplog.set_level(logging.DEBUG)
    async with trio.open_nursery() as asking:
        for work in (put("a"), refuse, put("b")):
            asking.start_soon(note, answers, mailbox.ask(work))
            await wait_all_tasks_blocked()
        nursery.start_soon(serve, mailbox, shelf)

    assert [str(answer) for answer in answers] == ["A", "thing: no", "B"]
    assert shelf.visits == [["a"], ["b"]]
    assert "3 are done one by one: Invalid" in caplog.text


async def test_a_crash_is_the_actors_end_and_no_asker_hangs(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: dict[str, list[object]] = {}
    for name, work in {"a": put("a"), "fault": fail, "b": put("b"), "c": put("c")}.items():
        answers[name] = []
        nursery.start_soon(note, answers[name], mailbox.ask(work))
        await wait_all_tasks_blocked()

    with pytest.raises(ZeroDivisionError):
        await serve(mailbox, shelf)
    await wait_all_tasks_blocked()

    assert answers["a"] == ["A"]
    assert [type(answer) for answer in answers["fault"]] == [ActorRestarting]
    assert "the shelf part of the daemon" in str(answers["fault"][0])
    assert answers["b"] == []  # who had not come to its turn waits for the next instance
    nursery.start_soon(serve, mailbox, shelf)
    assert await mailbox.ask(put("d")) == "D"
    await wait_all_tasks_blocked()
    assert answers["b"] == ["B"]
    assert answers["c"] == ["C"]
    assert shelf.visits == [["a"], ["b", "c", "d"]]


async def test_a_fault_that_does_not_come_again_is_nobodys(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    faults = [ZeroDivisionError(), None]

    def fail_once(_: Shelf) -> str:
        if fault := faults.pop(0):
            raise fault
        return "B"

    async with trio.open_nursery() as asking:
        for work in (put("a"), fail_once):
            asking.start_soon(note, answers, mailbox.ask(work))
            await wait_all_tasks_blocked()
        nursery.start_soon(serve, mailbox, shelf)

    assert answers == ["A", "B"]


async def test_who_goes_while_others_of_its_visit_are_done_alone_takes_its_work_along(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    async with trio.open_nursery() as asking:
        asking.start_soon(note, answers, mailbox.ask(refuse))
        await wait_all_tasks_blocked()
        asking.start_soon(note, answers, mailbox.ask(put("a")))
        await wait_all_tasks_blocked()
        leaving = trio.CancelScope()

        async def leave() -> None:
            with leaving:
                await mailbox.ask(put("b"))

        asking.start_soon(leave)
        await wait_all_tasks_blocked()
        with closed_door(shelf):
            nursery.start_soon(serve, mailbox, shelf)
            await until_entered(shelf)
            leaving.cancel()
            await wait_all_tasks_blocked()

    assert [str(answer) for answer in answers] == ["thing: no", "A"]
    assert shelf.visits == [["a"]]


async def test_who_goes_before_its_turn_takes_its_work_along(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    async with trio.open_nursery() as asking:
        asking.start_soon(mailbox.ask, put("a"))
        await wait_all_tasks_blocked()
        asking.cancel_scope.cancel()
    nursery.start_soon(serve, mailbox, shelf)

    await mailbox.ask(put("b"))

    assert shelf.visits == [["b"]]


class Large:
    """An answer that shows whether anybody still has it."""


async def test_answers_are_gone_when_their_askers_have_let_them_go(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    made: list[weakref.ref[Large]] = []

    def make(_: Shelf) -> Large:
        large = Large()
        made.append(weakref.ref(large))
        return large

    async def ask() -> None:
        await mailbox.ask(make)

    async with trio.open_nursery() as asking:
        for _ in range(MOST):
            asking.start_soon(ask)
        await wait_all_tasks_blocked()
        nursery.start_soon(serve, mailbox, shelf)

    with trio.fail_after(10):  # the thread lets go of it when it has given it
        while [large() for large in made] != [None] * MOST:
            await trio.lowlevel.checkpoint()


async def test_those_for_whom_a_visit_was_too_long_have_the_next_one(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    asked: list[int] = []

    def two_of(shelf: Shelf, works: Sequence[Callable[[Shelf], object]]) -> list[object]:
        asked.append(len(works))
        return shelf.together(works[:2])

    async with trio.open_nursery() as asking:
        for thing in "abcde":
            asking.start_soon(note, answers, mailbox.ask(put(thing)))
            await wait_all_tasks_blocked()
        nursery.start_soon(partial(mailbox.serve, shelf, two_of, most=5))

    assert sorted(map(str, answers)) == ["A", "B", "C", "D", "E"]
    assert asked == [5, 3]  # the last one is alone
    assert shelf.visits == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_full_queue_takes_back_as_many_as_it_has_room_for(
    shelf: Shelf, nursery: trio.Nursery
) -> None:
    mailbox = BlockingMailbox[Shelf]("shelf", size=3)
    answers: dict[str, list[object]] = {name: [] for name in ("fault", "b", "c", "d", "e")}

    async def ask(name: str, work: Callable[[Shelf], object]) -> None:
        nursery.start_soon(note, answers[name], mailbox.ask(work))
        await wait_all_tasks_blocked()

    def fail_once_the_queue_is_full(_: Shelf) -> None:
        assert shelf.door.wait(10)
        raise ZeroDivisionError

    await ask("fault", fail_once_the_queue_is_full)
    await ask("b", put("b"))
    await ask("c", put("c"))
    async with trio.open_nursery() as instance:

        async def crash() -> None:
            with pytest.raises(ZeroDivisionError):
                await serve(mailbox, shelf)

        with closed_door(shelf):
            instance.start_soon(crash)
            await wait_all_tasks_blocked()
            await ask("d", put("d"))
            await ask("e", put("e"))
    await wait_all_tasks_blocked()
    assert [type(answer) for answer in answers["e"]] == [ActorRestarting]

    nursery.start_soon(serve, mailbox, shelf)
    with trio.fail_after(10):
        while not all(answers[name] for name in "bcd"):
            await trio.lowlevel.checkpoint()

    assert [answers[name] for name in "bcd"] == [["B"], ["C"], ["D"]]
    assert shelf.visits == [["b", "c", "d"]]


async def test_an_idle_one_comes_round_without_a_visit(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    nursery.start_soon(serve, mailbox, shelf)
    await wait_all_tasks_blocked()
    mailbox.heartbeat.last = -1.0

    mailbox.heartbeat.probe()
    await wait_all_tasks_blocked()

    assert mailbox.heartbeat.last >= 0.0
    assert shelf.visits == []


async def test_it_comes_round_before_each_that_is_done_alone(
    mailbox: BlockingMailbox[Shelf],
    shelf: Shelf,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: list[object] = []
    beats: list[int] = []
    for work in (refuse, put("a"), put("b")):
        nursery.start_soon(note, answers, mailbox.ask(work))
        await wait_all_tasks_blocked()
    monkeypatch.setattr(mailbox.heartbeat, "touch", lambda: beats.append(len(shelf.visits)))

    nursery.start_soon(serve, mailbox, shelf)
    await mailbox.ask(put("c"))

    assert beats[:4] == [0, 0, 0, 1]  # at the beginning, and before each


async def test_who_is_cancelled_waits_for_the_thread_and_answers(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    async with trio.open_nursery() as instance:
        instance.start_soon(serve, mailbox, shelf)
        with closed_door(shelf):
            nursery.start_soon(note, answers, mailbox.ask(put("a")))
            await until_entered(shelf)
            instance.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert answers == []
    await wait_all_tasks_blocked()

    assert answers == ["A"]


async def test_one_that_is_cancelled_before_its_visit_leaves_nobody_waiting(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    nursery.start_soon(note, answers, mailbox.ask(put("a")))
    await wait_all_tasks_blocked()

    with trio.CancelScope() as scope:
        scope.cancel()
        await serve(mailbox, shelf)
    mailbox.close("it is over")
    await wait_all_tasks_blocked()

    assert [type(answer) for answer in answers] == [ActorGone]
    with pytest.raises(ActorGone):
        await mailbox.ask(put("b"))
    nursery.start_soon(serve, mailbox, shelf)
    await wait_all_tasks_blocked()
    assert await mailbox.ask(put("c")) == "C"


async def test_what_is_done_for_somebody_is_done_as_part_of_their_work(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    async def ask(request_id: str) -> None:
        with bind_log_contexts([LogContext(request_id=request_id)]):
            await mailbox.ask(put(request_id))

    async with trio.open_nursery() as asking:
        for request_id in ("one", "two"):
            asking.start_soon(ask, request_id)
            await wait_all_tasks_blocked()
        nursery.start_soon(serve, mailbox, shelf)

    assert shelf.visits == [["one", "two"]]
    assert shelf.for_whom == [(LogContext(request_id="one"),), (LogContext(request_id="two"),)]
