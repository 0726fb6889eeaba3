"""Actors whose work blocks: one visit of a thread for all waiting calls."""

from __future__ import annotations

import threading
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
from tests.supervision.conftest import note


class Shelf:
    """The state of an actor: the things that were put onto it, by the visits that did it.

    A visit that finds the door closed waits until it opens.
    """

    def __init__(self) -> None:
        self.visits: list[list[str]] = []
        self.entered = 0
        self.threads: set[int] = set()
        self.contexts: list[Sequence[LogContext]] = []
        self.door = threading.Event()
        self.door.set()
        self._visit: list[str] | None = None

    def together(self, tasks: Sequence[Callable[[Shelf], object]]) -> list[object]:
        self._visit = []
        try:
            done = [task(self) for task in tasks]
            self.visits.append(self._visit)
        finally:
            self._visit = None
        return done

    def put(self, thing: str) -> str:
        self.entered += 1
        assert self.door.wait(10)
        if self._visit is None:
            self.visits.append([thing])
        else:
            self._visit.append(thing)
        self.threads.add(threading.get_ident())
        self.contexts.append(tuple(current_log_contexts()))
        return thing.upper()


Work = Callable[[Shelf], object]


def put(thing: str) -> Callable[[Shelf], str]:
    return lambda shelf: shelf.put(thing)


def refuse(_: Shelf) -> None:
    raise Invalid("thing: no")


def fail(shelf: Shelf) -> None:
    assert shelf.door.wait(10)
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
    shelf.door.clear()
    try:
        yield
    finally:
        shelf.door.set()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


async def serve(mailbox: BlockingMailbox[Shelf], shelf: Shelf) -> None:
    await mailbox.serve(shelf, Shelf.together, most=3)


async def ask_each(
    nursery: trio.Nursery, mailbox: BlockingMailbox[Shelf], *works: Work
) -> list[list[object]]:
    """Ask for each work, in order. The answers come into the returned lists."""
    answers: list[list[object]] = []
    for work in works:
        answers.append([])
        nursery.start_soon(note, answers[-1], mailbox.ask(work))
        await wait_all_tasks_blocked()
    return answers


async def test_waiting_calls_are_done_in_order_in_bounded_visits_on_a_thread(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    nursery.start_soon(serve, mailbox, shelf)
    async with trio.open_nursery() as asking:
        with closed_door(shelf):
            first = await ask_each(asking, mailbox, put("a"))
            await until(lambda: shelf.entered > 0)
            others = await ask_each(asking, mailbox, *map(put, "bcdef"))

    assert shelf.visits == [["a"], ["b", "c", "d"], ["e", "f"]]
    assert first + others == [["A"], ["B"], ["C"], ["D"], ["E"], ["F"]]
    assert threading.get_ident() not in shelf.threads


async def test_calls_beyond_the_length_of_a_visit_are_done_in_the_next_one(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    def two_of(shelf: Shelf, works: Sequence[Work]) -> list[object]:
        return shelf.together(works[:2])

    async with trio.open_nursery() as asking:
        answers = await ask_each(asking, mailbox, *map(put, "abcde"))
        nursery.start_soon(partial(mailbox.serve, shelf, two_of, most=5))

    assert answers == [["A"], ["B"], ["C"], ["D"], ["E"]]
    assert shelf.visits == [["a", "b"], ["c", "d"], ["e"]]


async def test_work_is_done_with_the_log_context_of_its_caller(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    async with trio.open_nursery() as asking:
        for request_id in ("one", "two"):
            with bind_log_contexts([LogContext(request_id=request_id)]):
                asking.start_soon(note, [], mailbox.ask(put(request_id)))
                await wait_all_tasks_blocked()
        nursery.start_soon(serve, mailbox, shelf)

    assert shelf.visits == [["one", "two"]]
    assert shelf.contexts == [(LogContext(request_id="one"),), (LogContext(request_id="two"),)]


# Threads


async def test_calls_are_refused_without_a_thread_and_the_actor_lives_on(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery, no_thread: Shortage
) -> None:
    with no_thread():
        async with trio.open_nursery() as asking:
            answers = await ask_each(asking, mailbox, put("a"), put("b"))
            nursery.start_soon(serve, mailbox, shelf)

    assert [type(each) for (each,) in answers] == [NoThread, NoThread]
    assert await mailbox.ask(put("c")) == "C"
    assert shelf.visits == [["c"]]


async def test_actor_has_a_thread_when_all_default_threads_are_taken(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    others = trio.to_thread.current_default_thread_limiter()
    for _ in range(int(others.total_tokens)):
        others.acquire_on_behalf_of_nowait(object())
    await ask_each(nursery, mailbox, put("a"), put("b"))
    nursery.start_soon(serve, mailbox, shelf)

    with trio.fail_after(10):
        assert await mailbox.ask(put("c")) == "C"
        assert await mailbox.ask(put("d")) == "D"
    assert shelf.visits == [["a", "b", "c"], ["d"]]


# Errors


async def test_refusal_is_its_callers_alone_and_the_others_are_done_one_by_one(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    async with trio.open_nursery() as asking:
        answers = await ask_each(asking, mailbox, put("a"), refuse, put("b"))
        nursery.start_soon(serve, mailbox, shelf)

    assert [str(answer) for (answer,) in answers] == ["A", "thing: no", "B"]
    assert shelf.visits == [["a"], ["b"]]


async def test_error_ends_the_actor_and_calls_after_it_wait_for_the_next_instance(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    before, faulty, *after = await ask_each(
        nursery, mailbox, put("a"), fail, put("b"), put("c"), put("d")
    )
    with pytest.raises(ZeroDivisionError):
        await mailbox.serve(shelf, Shelf.together, most=4)
    await wait_all_tasks_blocked()

    assert before == ["A"]
    assert [type(answer) for answer in faulty] == [ActorRestarting]
    assert "the shelf part of the daemon" in str(faulty[0])
    assert after == [[], [], []]
    nursery.start_soon(serve, mailbox, shelf)
    await until(lambda: all(after))
    assert after == [["B"], ["C"], ["D"]]
    assert shelf.visits == [["a"], ["b", "c", "d"]]


async def test_error_with_a_full_queue_refuses_the_last_call_that_finds_no_room(
    shelf: Shelf, nursery: trio.Nursery
) -> None:
    mailbox = BlockingMailbox[Shelf]("shelf", size=3)
    _, b, c = await ask_each(nursery, mailbox, fail, put("b"), put("c"))
    async with trio.open_nursery() as instance:

        async def crash() -> None:
            with pytest.raises(ZeroDivisionError):
                await serve(mailbox, shelf)

        with closed_door(shelf):
            instance.start_soon(crash)
            await wait_all_tasks_blocked()
            d, e = await ask_each(nursery, mailbox, put("d"), put("e"))
    await wait_all_tasks_blocked()
    assert [type(answer) for answer in e] == [ActorRestarting]

    nursery.start_soon(serve, mailbox, shelf)
    await until(lambda: all((b, c, d)))
    assert (b, c, d) == (["B"], ["C"], ["D"])
    assert shelf.visits == [["b", "c", "d"]]


# Callers that leave, and the end


@pytest.mark.parametrize("when", ["in the queue", "while another is done alone"])
async def test_work_of_a_caller_that_has_left_is_not_done(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery, when: str
) -> None:
    is_alone = when == "while another is done alone"
    async with trio.open_nursery() as leaving:
        answers = await ask_each(nursery, mailbox, *[refuse] * is_alone, put("a"))
        await ask_each(leaving, mailbox, put("b"))
        if is_alone:
            with closed_door(shelf):
                nursery.start_soon(serve, mailbox, shelf)
                await until(lambda: shelf.entered > 0)
                leaving.cancel_scope.cancel()
                await wait_all_tasks_blocked()
        leaving.cancel_scope.cancel()
    if not is_alone:
        nursery.start_soon(serve, mailbox, shelf)
    await mailbox.ask(put("c"))
    await until(lambda: len(answers[-1]) > 0)

    assert answers[-1] == ["A"]
    assert "b" not in [thing for visit in shelf.visits for thing in visit]


async def test_cancelled_actor_waits_for_its_thread_and_answers(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    async with trio.open_nursery() as instance:
        instance.start_soon(serve, mailbox, shelf)
        with closed_door(shelf):
            answers = await ask_each(nursery, mailbox, put("a"))
            await until(lambda: shelf.entered > 0)
            instance.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert answers == [[]]
    await wait_all_tasks_blocked()

    assert answers == [["A"]]


async def test_actor_cancelled_before_its_visit_leaves_no_caller_waiting(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    ((answers),) = await ask_each(nursery, mailbox, put("a"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await serve(mailbox, shelf)
    mailbox.close("it is over")
    await note(answers, mailbox.ask(put("b")))
    await wait_all_tasks_blocked()

    assert [type(answer) for answer in answers] == [ActorGone, ActorGone]
    nursery.start_soon(serve, mailbox, shelf)
    await wait_all_tasks_blocked()
    assert await mailbox.ask(put("c")) == "C"


# Heartbeats


async def test_heartbeat_moves_before_each_work_that_is_done_alone(
    mailbox: BlockingMailbox[Shelf], shelf: Shelf, nursery: trio.Nursery
) -> None:
    beats: list[float] = []

    def look(_: Shelf) -> None:
        beats.append(mailbox.heartbeat.last)
        mailbox.heartbeat.last = -1.0

    async with trio.open_nursery() as asking:
        await ask_each(asking, mailbox, refuse, look, look)
        nursery.start_soon(serve, mailbox, shelf)

    assert len(beats) == 2
    assert min(beats) >= 0.0
