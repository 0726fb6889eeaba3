"""Mailboxes of actors: order, bounds, deadlines, errors, restarts, peeks and heartbeats."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Invalid, NotAllowed, Refused, Unavailable
from smartlinkd.supervision.actor import ActorGone, ActorRestarting, Mailbox, Overloaded
from tests.supervision.conftest import note


class Worker:
    """The state of an actor that works for as long as a call says."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.at_work = 0
        self.most_at_work = 0

    async def work(self, thing: str, seconds: float = 0.0) -> str:
        self.begun.append(thing)
        self.at_work += 1
        self.most_at_work = max(self.most_at_work, self.at_work)
        try:
            await trio.sleep(seconds)
        finally:
            self.at_work -= 1
        self.done.append(thing)
        return thing.upper()

    async def fail(self, *errors: BaseException) -> None:
        """Raise one error as it is, several out of a nursery."""
        await trio.sleep(1)
        if len(errors) == 1:
            raise errors[0]
        async with trio.open_nursery() as nursery:
            for error in errors:
                nursery.start_soon(self._raise, error)

    async def _raise(self, error: BaseException) -> None:
        raise error

    async def fail_deep(self, *errors: BaseException) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fail, *errors)

    async def hang(self, until: trio.Event) -> None:
        with trio.CancelScope(shield=True):
            await until.wait()

    async def fail_when_cancelled(self, error: Exception) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    def count_done(self, times: int = 1, *, add: int = 0) -> int:
        return len(self.done) * times + add

    def raise_at_once(self, error: Exception) -> None:
        raise error


class Instance:
    """One run of an actor, and the error that ended it."""

    def __init__(self, mailbox: Mailbox[Worker], worker: Worker, *, at_once: int = 1) -> None:
        self.scope = trio.CancelScope()
        self.end: BaseException | None = None
        self._serve = partial(mailbox.serve, worker, at_once=at_once)

    async def run(self) -> None:
        try:
            with self.scope:
                await self._serve()
        except BaseException as error:  # noqa: BLE001 - a test looks at it
            self.end = error


@pytest.fixture
def mailbox() -> Mailbox[Worker]:
    return Mailbox[Worker]("desk", size=8)


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def actor(mailbox: Mailbox[Worker], worker: Worker, nursery: trio.Nursery) -> Instance:
    instance = Instance(mailbox, worker)
    nursery.start_soon(instance.run)
    return instance


async def ask_each(
    nursery: trio.Nursery, mailbox: Mailbox[Worker], things: str, seconds: float = 0.0
) -> list[object]:
    """Ask for each thing, in order. Their answers come into the returned list."""
    answers: list[object] = []
    for thing in things:
        nursery.start_soon(note, answers, mailbox.ask(Worker.work, thing, seconds))
        await wait_all_tasks_blocked()
    return answers


# Order and bounds


@pytest.mark.parametrize("at_once", [1, 3])
async def test_calls_are_answered_in_order_and_at_most_so_many_at_once(
    mailbox: Mailbox[Worker],
    worker: Worker,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    at_once: int,
) -> None:
    answers = await ask_each(nursery, mailbox, "abcde", 1.0)
    nursery.start_soon(partial(mailbox.serve, worker, at_once=at_once))
    await trio.sleep(0.5)
    assert (worker.most_at_work, mailbox.waiting) == (at_once, 5 - at_once)
    await trio.sleep(10)
    assert sorted(map(str, answers)) == ["A", "B", "C", "D", "E"]
    assert worker.most_at_work == at_once
    if at_once == 1:
        assert worker.done == list("abcde")


async def test_full_mailbox_refuses_at_once_and_does_not_count_the_call_in_work(
    worker: Worker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Worker]("desk", size=2)
    nursery.start_soon(mailbox.serve, worker)
    answers = await ask_each(nursery, mailbox, "abc", 1.0)
    with pytest.raises(Overloaded, match="the desk part of the daemon has a full queue") as refused:
        await mailbox.ask(Worker.work, "d")
    assert trio.current_time() == 0.0
    assert isinstance(refused.value, Unavailable)
    assert refused.value.retry_after == 1
    await trio.sleep(5)
    assert answers == ["A", "B", "C"]


# Callers that leave


@pytest.mark.parametrize("size", [3, 8])  # the room is needed, or not
async def test_call_whose_caller_has_left_makes_room_and_never_starts(
    worker: Worker, nursery: trio.Nursery, autojump_clock: MockClock, size: int
) -> None:
    mailbox = Mailbox[Worker]("desk", size=size)
    answers = await ask_each(nursery, mailbox, "a")
    async with trio.open_nursery() as leaving:
        await ask_each(leaving, mailbox, "b")
        others = await ask_each(nursery, mailbox, "c")
        leaving.cancel_scope.cancel()
    last = await ask_each(nursery, mailbox, "d")
    nursery.start_soon(mailbox.serve, worker)
    await trio.sleep(1)
    assert answers + others + last == ["A", "C", "D"]
    assert worker.begun == ["a", "c", "d"]


async def test_caller_that_leaves_cancels_its_call_and_the_next_call_waits_for_its_cleanup(
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
    assert trio.current_time() == 6.0


@pytest.mark.parametrize("serving", [True, False])
async def test_cancelled_caller_neither_asks_nor_peeks(
    mailbox: Mailbox[Worker], worker: Worker, nursery: trio.Nursery, serving: bool
) -> None:
    if serving:
        nursery.start_soon(mailbox.serve, worker)
        await wait_all_tasks_blocked()
    for question in (
        partial(mailbox.ask, Worker.work, "a"),
        partial(mailbox.peek, Worker.count_done),
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await question()
        assert scope.cancelled_caught
    assert (mailbox.waiting, worker.begun) == (0, [])


@pytest.mark.parametrize(("error", "ends"), [(Invalid("no"), False), (ValueError("broken"), True)])
async def test_cancelled_call_ends_the_actor_by_an_error_but_not_by_a_refusal(
    mailbox: Mailbox[Worker],
    actor: Instance,
    autojump_clock: MockClock,
    error: Exception,
    ends: bool,
) -> None:
    with trio.move_on_after(1) as given_up:
        await mailbox.ask(Worker.fail_when_cancelled, error)
    await wait_all_tasks_blocked()
    assert given_up.cancelled_caught
    assert actor.end is (error if ends else None)


# Errors


async def test_refusal_reaches_the_caller_alone_and_the_actor_keeps_its_state(
    mailbox: Mailbox[Worker], worker: Worker, actor: Instance, autojump_clock: MockClock
) -> None:
    refusal = Invalid("thing: no")
    for method in (Worker.fail, Worker.fail_deep):
        with pytest.raises(Invalid) as refused:
            await mailbox.ask(method, refusal)
        assert refused.value is refusal
    with pytest.raises((Invalid, NotAllowed)):
        await mailbox.ask(Worker.fail_deep, refusal, NotAllowed("thing: no"))
    await mailbox.ask(Worker.work, "a")
    assert worker.done == ["a"]
    assert actor.end is None


async def test_refusal_frees_its_slot(
    mailbox: Mailbox[Worker], worker: Worker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    nursery.start_soon(partial(mailbox.serve, worker, at_once=2))
    for _ in range(3):
        with pytest.raises(Invalid):
            await mailbox.ask(Worker.fail, Invalid("no"))
    assert await mailbox.ask(Worker.work, "a") == "A"


@pytest.mark.parametrize(
    ("errors", "refused_with"),
    [
        ((ValueError("broken"),), ActorRestarting),
        ((ValueError("broken"), KeyError("lost")), ActorRestarting),
        ((KeyboardInterrupt(),), ActorRestarting),
        ((Invalid("thing: no"), ValueError("broken")), Invalid),
        ((KeyboardInterrupt(), Invalid("thing: no")), Invalid),
    ],
    ids=["error", "several errors", "interrupt", "refusal and error", "interrupt and refusal"],
)
async def test_error_ends_the_actor_and_refuses_its_caller(
    *,
    mailbox: Mailbox[Worker],
    actor: Instance,
    autojump_clock: MockClock,
    errors: tuple[BaseException, ...],
    refused_with: type[Refused],
) -> None:
    with pytest.raises(refused_with) as refused:
        await mailbox.ask(Worker.fail, *errors)
    if isinstance(refused.value, ActorRestarting):
        assert isinstance(refused.value, Unavailable)
        assert refused.value.retry_after == 1
        assert str(refused.value).startswith("the desk part of the daemon restarted while")
    await wait_all_tasks_blocked()
    ends = actor.end.exceptions if isinstance(actor.end, BaseExceptionGroup) else (actor.end,)
    assert set(ends) == {each for each in errors if not isinstance(each, Refused)}


@pytest.mark.parametrize("how", ["error", "cancelled"])
@pytest.mark.parametrize("at_once", [1, 2])
async def test_end_of_the_actor_refuses_its_calls_and_keeps_the_waiting_ones(
    *,
    mailbox: Mailbox[Worker],
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    at_once: int,
    how: str,
) -> None:
    instance = Instance(mailbox, Worker(), at_once=at_once)
    nursery.start_soon(instance.run)
    working: list[object] = []
    nursery.start_soon(note, working, mailbox.ask(Worker.fail, ValueError("broken")))
    await wait_all_tasks_blocked()
    if at_once == 2:
        nursery.start_soon(note, working, mailbox.ask(Worker.work, "a", 10.0))
        await wait_all_tasks_blocked()
    waiting = await ask_each(nursery, mailbox, "bc")
    await trio.sleep(0.5)
    if how == "cancelled":
        instance.scope.cancel()
    await trio.sleep(1)
    assert [type(answer) for answer in working] == [ActorRestarting] * at_once
    assert (waiting, mailbox.waiting) == ([], 2)
    assert (instance.end is None) is (how == "cancelled")
    nursery.start_soon(Instance(mailbox, Worker()).run)
    await trio.sleep(1)
    assert waiting == ["B", "C"]


# The end, and a new start


async def test_closed_mailbox_refuses_waiting_and_new_calls_until_an_instance_serves(
    mailbox: Mailbox[Worker], worker: Worker, nursery: trio.Nursery
) -> None:
    answers = await ask_each(nursery, mailbox, "ab")
    mailbox.close("it has done its work")
    await note(answers, mailbox.ask(Worker.work, "c"))
    await wait_all_tasks_blocked()
    assert {str(answer) for answer in answers} == {
        "the desk part of the daemon has ended: it has done its work"
    }
    assert [answer.retry_after for answer in answers if isinstance(answer, ActorGone)] == [5] * 3
    assert mailbox.waiting == 0
    nursery.start_soon(mailbox.serve, worker)
    await wait_all_tasks_blocked()
    assert await mailbox.ask(Worker.work, "a") == "A"


async def test_close_leaves_the_call_in_work_to_the_actor_and_refuses_peeks(
    mailbox: Mailbox[Worker], actor: Instance, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    answers = await ask_each(nursery, mailbox, "a", 1.0)
    mailbox.close("it has done its work")
    with pytest.raises(ActorGone):
        await mailbox.peek(Worker.count_done)
    await trio.sleep(5)
    assert answers == ["A"]


# Peeks


async def test_peek_is_answered_at_once_although_the_mailbox_is_full(
    worker: Worker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Worker]("desk", size=1)
    nursery.start_soon(mailbox.serve, worker)
    await mailbox.ask(Worker.work, "a")
    await ask_each(nursery, mailbox, "bc", 3600.0)
    with pytest.raises(Overloaded):
        await mailbox.ask(Worker.work, "d")
    assert await mailbox.peek(Worker.count_done, 3, add=10) == 13
    assert trio.current_time() == 0.0


async def test_peek_without_an_instance_waits_for_the_next_one(
    mailbox: Mailbox[Worker], worker: Worker, nursery: trio.Nursery
) -> None:
    answers: list[object] = []
    for expected in ([3], [3, 3]):
        nursery.start_soon(note, answers, mailbox.peek(Worker.count_done, add=3))
        await wait_all_tasks_blocked()
        assert (len(answers), mailbox.waiting) == (len(expected) - 1, 1)
        async with trio.open_nursery() as instance:
            instance.start_soon(mailbox.serve, worker)
            await wait_all_tasks_blocked()
            instance.cancel_scope.cancel()
        assert answers == expected


@pytest.mark.parametrize(
    ("error", "refused_with"),
    [(Invalid("thing: no"), Invalid), (ZeroDivisionError(), ActorRestarting)],
)
async def test_peek_that_fails_by_a_bug_ends_the_actor_and_one_that_refuses_does_not(
    mailbox: Mailbox[Worker],
    actor: Instance,
    error: Exception,
    refused_with: type[Refused],
) -> None:
    await wait_all_tasks_blocked()
    with pytest.raises(refused_with):
        await mailbox.peek(Worker.raise_at_once, error)
    await wait_all_tasks_blocked()
    assert actor.end is (None if isinstance(error, Refused) else error)


# Logs and heartbeats


async def silence_after_probes(mailbox: Mailbox[Worker], seconds: float) -> float:
    """Probe every 5 s for so long. Return the time since the last heartbeat."""
    until = trio.current_time() + seconds
    while trio.current_time() < until:
        mailbox.heartbeat.probe()
        await trio.sleep(5.0)
    return trio.current_time() - mailbox.heartbeat.last


@pytest.mark.parametrize("at_once", [1, 3])
async def test_heartbeat_stops_when_calls_hang_in_all_slots(
    worker: Worker, nursery: trio.Nursery, autojump_clock: MockClock, at_once: int
) -> None:
    mailbox, release = Mailbox[Worker]("desk", size=0), trio.Event()
    nursery.start_soon(partial(mailbox.serve, worker, at_once=at_once))
    for _ in range(at_once):
        await wait_all_tasks_blocked()
        assert await silence_after_probes(mailbox, 600.0) == 5.0
        nursery.start_soon(mailbox.ask, Worker.hang, release)
    await wait_all_tasks_blocked()
    assert await silence_after_probes(mailbox, 600.0) >= 600.0
    release.set()
    assert await silence_after_probes(mailbox, 60.0) == 5.0
