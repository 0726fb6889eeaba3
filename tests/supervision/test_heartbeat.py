"""Signs of life: who gives them, when a loop that hangs gives none, and what may take longer."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.heartbeat import Heartbeat, WatchedLoop
from smartlinkd.supervision.policy import Backoff, Intensity, Strategy
from smartlinkd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from tests.supervision.conftest import Child, Grow

EVERY = 5.0
STEADY = Backoff(first=8.0, jitter=0.0)


class Desk:
    """Does as it is told, for as long as it is told."""

    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def hang(self, until: trio.Event) -> None:
        with trio.CancelScope(shield=True):
            await until.wait()


async def ask_and_leave(mailbox: Mailbox[Desk], seconds: float) -> None:
    """As others do, who may be refused."""
    with suppress(Refused):
        await mailbox.ask(Desk.work, seconds)


async def last_after_prompts(heartbeat: Heartbeat, seconds: float) -> float:
    """Prompt for so long; how long ago the last beat was then."""
    until = trio.current_time() + seconds
    while trio.current_time() < until:
        heartbeat.probe()
        await trio.sleep(EVERY)
    return trio.current_time() - heartbeat.last


# A mailbox's loop


@pytest.mark.parametrize("at_once", [1, 3])
async def test_an_idle_loop_beats_when_it_is_prompted(
    nursery: trio.Nursery, autojump_clock: MockClock, at_once: int
) -> None:
    mailbox = Mailbox[Desk]("desk", size=0)
    nursery.start_soon(partial(mailbox.serve, Desk(), at_once=at_once))
    assert await last_after_prompts(mailbox.heartbeat, 600.0) == EVERY


async def test_an_idle_loop_that_is_not_prompted_sleeps(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=8)
    nursery.start_soon(mailbox.serve, Desk())
    await trio.sleep(600.0)
    assert mailbox.heartbeat.last == 0.0


async def test_a_prompt_is_asked_by_nobody_and_takes_nobodys_place(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox = Mailbox[Desk]("desk", size=1)
    for _ in range(9):
        mailbox.heartbeat.probe()  # nobody serves: it is for nobody
    assert mailbox.waiting == 0
    nursery.start_soon(mailbox.serve, Desk())
    nursery.start_soon(ask_and_leave, mailbox, 7.0)
    await wait_all_tasks_blocked()
    mailbox.heartbeat.probe()  # it is at work
    assert mailbox.waiting == 0
    await mailbox.ask(Desk.work, 0.0)
    assert trio.current_time() == 7.0


@pytest.mark.parametrize("at_once", [1, 3])
async def test_a_full_mailbox_that_is_worked_off_beats(
    nursery: trio.Nursery, autojump_clock: MockClock, at_once: int
) -> None:
    mailbox = Mailbox[Desk]("desk", size=4)

    async def crowd() -> None:
        while True:
            nursery.start_soon(ask_and_leave, mailbox, 2.0)
            await trio.sleep(0.1)

    nursery.start_soon(partial(mailbox.serve, Desk(), at_once=at_once))
    nursery.start_soon(crowd)
    assert await last_after_prompts(mailbox.heartbeat, 600.0) <= 2.0
    assert mailbox.waiting >= 3  # one may have been taken just now


async def test_one_request_that_hangs_stops_a_loop_with_one_hand(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox, release = Mailbox[Desk]("desk", size=8), trio.Event()
    nursery.start_soon(mailbox.serve, Desk())
    nursery.start_soon(mailbox.ask, Desk.hang, release)
    await wait_all_tasks_blocked()
    assert await last_after_prompts(mailbox.heartbeat, 600.0) >= 600.0
    release.set()
    assert await last_after_prompts(mailbox.heartbeat, 60.0) == EVERY


async def test_a_loop_with_many_hands_stops_when_the_last_one_hangs(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mailbox, release = Mailbox[Desk]("desk", size=8), trio.Event()
    nursery.start_soon(partial(mailbox.serve, Desk(), at_once=3))
    for _ in range(2):
        nursery.start_soon(mailbox.ask, Desk.hang, release)
    await wait_all_tasks_blocked()
    assert await last_after_prompts(mailbox.heartbeat, 600.0) == EVERY
    nursery.start_soon(mailbox.ask, Desk.hang, release)
    await wait_all_tasks_blocked()
    assert await last_after_prompts(mailbox.heartbeat, 600.0) >= 600.0
    release.set()
    assert await last_after_prompts(mailbox.heartbeat, 60.0) == EVERY


# What a sign of life is worth


async def test_what_is_overdue_is_counted_from_the_last_sign(autojump_clock: MockClock) -> None:
    heartbeat = Heartbeat(lambda: None)
    vital = WatchedLoop("it", heartbeat, since=0.0, busy=3.0, task=trio.lowlevel.current_task())
    assert vital.last_seen == 0.0  # its start
    assert vital.seconds_late(10.0) == 7.0
    await trio.sleep(4.0)
    heartbeat.touch()
    assert vital.last_seen == 4.0
    assert vital.seconds_late(10.0) == 3.0
    heartbeat.touch(allowance_s=2.0)
    assert vital.seconds_late(10.0) == 1.0
    heartbeat.touch()
    assert vital.seconds_late(10.0) == 3.0


async def test_what_an_earlier_incarnation_was_allowed_is_not_the_next_ones(
    autojump_clock: MockClock,
) -> None:
    heartbeat = Heartbeat(lambda: None)
    heartbeat.touch(allowance_s=30.0)
    await trio.sleep(5.0)
    vital = WatchedLoop("it", heartbeat, since=5.0, busy=0.0, task=trio.lowlevel.current_task())
    assert vital.seconds_late(10.0) == 5.0


# A supervisor's


def beating(child: Child, heartbeat: Heartbeat, *, busy: float = 0.0) -> ChildSpec:
    return ChildSpec(child.name, child.run, stop=child.stop, heartbeats=(heartbeat,), busy=busy)


def names(supervisor: Supervisor) -> list[str]:
    return [each.name for each in supervisor.watched_loops()]


def seconds_late(supervisor: Supervisor) -> float:
    """Of the supervisor itself, after it was probed."""
    (own, *_) = supervisor.watched_loops()
    own.heartbeat.probe()
    return own.seconds_late(trio.current_time())


async def probed(supervisor: Supervisor, seconds: float) -> float:
    """How much its seconds_late comes to at most, within so many seconds."""
    most, until = 0.0, trio.current_time() + seconds
    while trio.current_time() < until:
        most = max(most, seconds_late(supervisor))
        await trio.sleep(EVERY)
    return most


@pytest.fixture
def heartbeat() -> Heartbeat:
    return Heartbeat(lambda: None)


async def test_it_and_its_children_that_have_a_pulse_are_vital_while_they_run(
    *, grow: Grow, a: Child, b: Child, c: Child, heartbeat: Heartbeat, autojump_clock: MockClock
) -> None:
    tree = Supervisor("tree", [beating(a, heartbeat, busy=7.0), b.spec(), beating(c, heartbeat)])
    assert names(tree) == []
    c.before = partial(trio.sleep, 3.0)
    grown = grow(tree)
    await wait_all_tasks_blocked()
    assert names(tree) == ["tree", "a"]
    await trio.sleep(4.0)
    assert names(tree) == ["tree", "a", "c"]
    own, first, last = tree.watched_loops()
    assert (own.since, first.since, last.since) == (0.0, 0.0, 3.0)
    assert (own.busy, first.busy, last.busy) == (0.0, 7.0, 0.0)
    assert "_instance" in first.task.name
    assert first.task is not last.task
    tree.stop()
    await grown.over.wait()
    assert names(tree) == []


async def test_a_child_that_waits_for_its_restart_is_not_vital(
    grow: Grow, a: Child, heartbeat: Heartbeat, autojump_clock: MockClock
) -> None:
    tree = Supervisor("tree", [beating(a, heartbeat)], backoff=STEADY)
    grow(tree)
    await wait_all_tasks_blocked()
    first = tree.watched_loops()[1]
    a.fail(ValueError())
    await wait_all_tasks_blocked()
    assert names(tree) == ["tree"]
    await trio.sleep(9.0)
    second = tree.watched_loops()[1]
    assert (second.name, second.since) == ("a", 8.0)
    assert second.task is not first.task


async def test_a_child_that_has_ended_is_not_vital_while_its_supervisor_is_busy_elsewhere(
    *, grow: Grow, a: Child, b: Child, c: Child, heartbeat: Heartbeat, autojump_clock: MockClock
) -> None:
    b.stop_takes = 4.0
    specs = [beating(c, heartbeat), beating(a, heartbeat), b.spec()]
    tree = Supervisor("tree", specs, strategy=Strategy.REST_FOR_ONE)
    grow(tree)
    await wait_all_tasks_blocked()
    a.fail(ValueError())  # b is being stopped now
    await wait_all_tasks_blocked()
    c.fail(ValueError())
    await wait_all_tasks_blocked()
    assert names(tree) == ["tree"]


async def test_an_idle_supervisor_beats_when_it_is_prompted(
    grow: Grow, a: Child, heartbeat: Heartbeat, autojump_clock: MockClock
) -> None:
    tree = Supervisor("tree", [beating(a, heartbeat)])
    grow(tree)
    await wait_all_tasks_blocked()
    assert await probed(tree, 600.0) == EVERY
    assert a.instances == 1


async def test_a_slow_start_and_a_slow_stop_are_within_what_was_allowed(
    grow: Grow, a: Child, b: Child, autojump_clock: MockClock
) -> None:
    a.before = partial(trio.sleep, 20.0)
    b.before = partial(trio.sleep, 29.0)
    a.stop_takes, b.stop_takes = 40.0, 50.0
    tree = Supervisor("tree", [a.spec(grace=45.0), b.spec(grace=55.0)])
    grown = grow(tree)
    await wait_all_tasks_blocked()
    assert await probed(tree, 60.0) == EVERY
    tree.stop()
    await wait_all_tasks_blocked()
    assert await probed(tree, 85.0) <= EVERY
    await grown.over.wait()


async def test_a_start_that_cannot_be_cancelled_is_overdue(
    grow: Grow, a: Child, autojump_clock: MockClock
) -> None:
    release = trio.Event()

    async def hang() -> None:
        with trio.CancelScope(shield=True):
            await release.wait()

    a.before = hang
    tree = Supervisor("tree", [a.spec(start_timeout=30.0)])
    grown = grow(tree)
    await wait_all_tasks_blocked()
    assert await probed(tree, 600.0) > 500.0
    release.set()
    await grown.over.wait()


async def test_a_child_that_does_not_end_is_overdue(
    grow: Grow, a: Child, autojump_clock: MockClock
) -> None:
    release = trio.Event()

    async def hang() -> None:
        with trio.CancelScope(shield=True):
            await release.wait()

    async def run(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await hang()

    tree = Supervisor("tree", [ChildSpec("it", run, grace=5.0)])
    grown = grow(tree)
    await wait_all_tasks_blocked()
    tree.stop()
    await wait_all_tasks_blocked()
    assert await probed(tree, 600.0) > 500.0
    release.set()
    await grown.over.wait()


async def test_a_nested_supervisors_vitals_are_its_parents_too_while_it_runs(
    grow: Grow, a: Child, b: Child, heartbeat: Heartbeat, autojump_clock: MockClock
) -> None:
    inner = Supervisor("inner", [beating(a, heartbeat)], intensity=Intensity(restarts=0))
    outer = Supervisor(
        "outer",
        [
            ChildSpec("inner", inner.run, stop=inner.stop, watched_loops=inner.watched_loops),
            beating(b, heartbeat),
        ],
        backoff=STEADY,
    )
    grow(outer)
    await wait_all_tasks_blocked()
    assert names(outer) == ["outer", "inner", "a", "b"]
    a.fail(ValueError())  # once is too often
    await wait_all_tasks_blocked()
    assert names(outer) == ["outer", "b"]
    await trio.sleep(10.0)
    assert names(outer) == ["outer", "inner", "a", "b"]


# Its end


def test_the_longest_end_is_all_graces_of_those_that_are_asked(a: Child, b: Child) -> None:
    never_asked = ChildSpec("c", a.run, grace=99.0)
    tree = Supervisor("tree", [a.spec(grace=3.0), b.spec(grace=4.0), never_asked])
    assert tree.longest_end == 7.0


@pytest.mark.parametrize("how", ["stop", "escalation", "cancelled"])
async def test_whoever_waits_for_the_end_hears_of_it_when_it_begins(
    grow: Grow, a: Child, b: Child, autojump_clock: MockClock, how: str
) -> None:
    heard: list[float] = []

    async def wait() -> None:
        await tree.wait_ending()
        heard.append(trio.current_time())

    a.stop_takes = 4.0
    tree = Supervisor("tree", [a.spec(), b.spec()], intensity=Intensity(restarts=0))
    grown = grow(tree)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(10.0)
        assert heard == []
        if how == "stop":
            tree.stop()
        elif how == "escalation":
            b.fail(ValueError())
        else:
            grown.scope.cancel()
    assert heard == [10.0]
    await grown.over.wait()
    assert trio.current_time() == (10.0 if how == "cancelled" else 14.0)
