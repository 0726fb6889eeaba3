"""A daemon that hangs is restarted, one that is busy is not. On real supervisors and mailboxes."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Delivery
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.heartbeat import WatchedLoop
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.watchdog import CHECKS_PER_LIMIT, MAX_TASKS, Watchdog, describe_stacks

WITHIN = 20.0
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
STRIKE = 2 * WITHIN + 2 * WITHIN / CHECKS_PER_LIMIT
"""Seconds after which the manager has struck whatever hung: there are pings until the last sign of
life is too old, and it waits as long again; up to a look more for each."""


class Desk:
    """Works for as long as it is told; `hang` cannot be cancelled."""

    def __init__(self, release: trio.Event) -> None:
        self._release = release

    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def hang(self) -> None:
        with trio.CancelScope(shield=True):
            await self._release.wait()

    async def crash(self) -> None:
        raise ZeroDivisionError


class Actor:
    """One as the daemon has them."""

    def __init__(self, name: str, *, at_once: int = 1, size: int = 4) -> None:
        self.mailbox = Mailbox[Desk](name, size=size)
        self.release = trio.Event()
        self._at_once = at_once

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await self.mailbox.serve(Desk(self.release), at_once=self._at_once)

    def spec(self, *, busy: float = 0.0) -> ChildSpec:
        mailbox = self.mailbox
        heartbeats = (mailbox.heartbeat,)
        return ChildSpec(mailbox.name, self.run, mailbox=mailbox, heartbeats=heartbeats, busy=busy)

    async def ask(self, work: Callable[[Desk], Awaitable[None]]) -> None:
        """And take no for an answer."""
        with suppress(Refused):
            await self.mailbox.ask(work)


class FullJournal:
    """One whose disk is full."""

    async def due_deliveries(self, *_: object, **__: object) -> list[Delivery]:
        await trio.lowlevel.checkpoint()
        raise Unavailable("the disk is full", retry_after=1)


class Manager:
    """What systemd does with pings: it notes the longest time without one."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._last = trio.current_time()
        self.longest = 0.0
        self.pings = 0

    async def run(self) -> None:
        while True:
            self.longest = max(self.longest, trio.current_time() - self._last)
            if self._watchdog.check_loops():
                self._last = trio.current_time()
                self.pings += 1
            await trio.sleep(self._watchdog.interval_s)

    def strikes(self) -> bool:
        return self.longest > WITHIN


@asynccontextmanager
async def watched(*specs: ChildSpec) -> AsyncIterator[Manager]:
    """A supervisor over these, watched while the body runs."""
    tree = Supervisor("tree", specs, backoff=Backoff(jitter=0.0), wall=lambda: NOON)
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)
        manager = Manager(Watchdog(tree.watched_loops, limit_s=WITHIN, wall=lambda: NOON))
        nursery.start_soon(manager.run)
        yield manager
        tree.stop()
        nursery.cancel_scope.cancel()


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [each for each in caplog.records if getattr(each, "event", None) is LogEvent.WATCHDOG]


@pytest.fixture
def serial() -> Actor:
    return Actor("serial")


@pytest.fixture
def concurrent() -> Actor:
    return Actor("concurrent", at_once=3)


# Busy


async def test_an_idle_daemon_is_pinged_for_all_the_time(
    autojump_clock: MockClock, serial: Actor, concurrent: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec(), concurrent.spec()) as manager:
        await trio.sleep(3599.0)
    assert manager.longest == WITHIN / CHECKS_PER_LIMIT
    assert manager.pings == 3600 / (WITHIN / CHECKS_PER_LIMIT)
    assert not told(caplog)


async def test_a_full_mailbox_is_busy(autojump_clock: MockClock, serial: Actor) -> None:
    async def crowd() -> None:
        while True:
            nursery.start_soon(serial.ask, partial(Desk.work, seconds=WITHIN - 1))
            await trio.sleep(1.0)

    async with watched(serial.spec()) as manager, trio.open_nursery() as nursery:
        nursery.start_soon(crowd)
        await trio.sleep(3600.0)
        assert serial.mailbox.waiting >= 3  # one may have been taken just now
        assert not manager.strikes()
        nursery.cancel_scope.cancel()


async def test_a_piece_of_work_of_hours_is_busy_where_there_are_more_hands(
    autojump_clock: MockClock, concurrent: Actor
) -> None:
    async with watched(concurrent.spec()) as manager, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(concurrent.ask, partial(Desk.work, seconds=4 * 3600.0))
        await trio.sleep(3 * 3600.0)
        assert not manager.strikes()
        nursery.cancel_scope.cancel()


async def test_all_hands_may_be_at_work_for_as_long_as_was_said(
    autojump_clock: MockClock, concurrent: Actor
) -> None:
    async with watched(concurrent.spec(busy=60.0)) as manager:
        for _ in range(5):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(concurrent.ask, partial(Desk.work, seconds=60.0))
        assert trio.current_time() == 300.0
        assert not manager.strikes()


async def test_webhooks_may_wait_for_hours_until_the_journal_has_room_again(
    autojump_clock: MockClock,
) -> None:
    webhooks = WebhookDispatcher(cast("Store", FullJournal()), allow=(), key=None)
    async with watched(
        ChildSpec("webhooks", webhooks.run, heartbeats=(webhooks.heartbeat,))
    ) as manager:
        await trio.sleep(3600.0)
        assert not manager.strikes()


async def test_a_part_that_crashes_and_waits_for_its_restart_is_not_stuck(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec()) as manager:
        for _ in range(4):  # the fourth wait is 4 s, and they come to 7.5 s
            await serial.ask(Desk.crash)
        serial.mailbox.heartbeat.last = -WITHIN  # as if the waits had been longer than that
        await trio.sleep(1.0)
        await serial.ask(partial(Desk.work, seconds=0.0))
        await trio.sleep(60.0)
        assert not manager.strikes()
    assert not told(caplog)


async def test_a_slow_start_is_its_supervisors_to_judge(
    autojump_clock: MockClock, serial: Actor
) -> None:
    async def run(task_status: trio.TaskStatus[None]) -> None:
        if trio.current_time():
            await trio.sleep(29.0)
        await serial.run(task_status)

    spec = ChildSpec("slow", run, mailbox=serial.mailbox, heartbeats=(serial.mailbox.heartbeat,))
    async with watched(spec) as manager:
        await serial.ask(Desk.crash)
        await trio.sleep(60.0)
        assert not manager.strikes()


# Stuck


async def test_a_request_that_never_ends_is_struck(
    autojump_clock: MockClock, serial: Actor, concurrent: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    specs = serial.spec(), concurrent.spec()
    async with watched(*specs) as manager, trio.open_nursery() as nursery:
        nursery.start_soon(serial.ask, Desk.hang)
        await trio.sleep(STRIKE)
        assert manager.strikes()
        serial.release.set()
    (record,) = told(caplog)
    assert record.about == {"actor": "serial"}  # type: ignore[attr-defined]


async def test_it_is_told_before_the_manager_strikes_with_where_it_stands(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec()) as manager, trio.open_nursery() as nursery:
        nursery.start_soon(serial.ask, Desk.hang)
        await trio.sleep(WITHIN + WITHIN / CHECKS_PER_LIMIT + 0.1)
        assert manager.longest <= WITHIN / CHECKS_PER_LIMIT
        (record,) = told(caplog)
        serial.release.set()
    text = record.getMessage()
    assert text.startswith(
        "serial has shown no sign of life for 25 s, since 2026-05-04T11:59:35.000Z: "
    )
    assert "restarts the daemon after 20 s of that" in text
    assert "Supervisor._instance at " in text
    assert "test_watchdog.py:" in text
    assert " hang < supervision/actor.py:" in text


async def test_it_is_told_once(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec()), trio.open_nursery() as nursery:
        nursery.start_soon(serial.ask, Desk.hang)
        await trio.sleep(600.0)
        serial.release.set()
    assert len(told(caplog)) == 1


async def test_one_that_comes_round_again_is_told_and_pinged_for(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec()) as manager, trio.open_nursery() as nursery:
        nursery.start_soon(serial.ask, Desk.hang)
        await trio.sleep(30.0)
        serial.release.set()
        await trio.sleep(30.0)
        assert not manager.strikes()
    assert "serial goes on after 35 s" in caplog.text


async def test_an_asker_who_gives_up_does_not_mend_it(
    autojump_clock: MockClock, serial: Actor
) -> None:
    async with watched(serial.spec()) as manager:
        with trio.move_on_after(1.0):
            await serial.ask(Desk.hang)
        await trio.sleep(STRIKE)
        assert manager.strikes()
        serial.release.set()


async def test_one_of_many_hands_is_no_reason_and_all_of_them_are(
    autojump_clock: MockClock, concurrent: Actor
) -> None:
    async with watched(concurrent.spec(busy=60.0)) as manager, trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(concurrent.ask, Desk.hang)
        await trio.sleep(3600.0)
        assert not manager.strikes()
        nursery.start_soon(concurrent.ask, Desk.hang)
        await trio.sleep(60.0 + STRIKE)
        assert manager.strikes()
        concurrent.release.set()


async def test_a_part_that_never_gets_to_its_mailbox_is_struck(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    spec = ChildSpec("late", run, mailbox=serial.mailbox, heartbeats=(serial.mailbox.heartbeat,))
    async with watched(spec) as manager:
        await trio.sleep(STRIKE)
        assert manager.strikes()
    assert [each.about for each in told(caplog)] == [  # type: ignore[attr-defined]
        {"actor": "late"}
    ]


async def test_a_supervisor_that_cannot_end_a_child_is_struck(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(task_status: trio.TaskStatus[None]) -> None:
        if trio.current_time():
            with trio.CancelScope(shield=True):
                await serial.release.wait()
        else:
            await serial.run(task_status)

    spec = ChildSpec("hangs", run, mailbox=serial.mailbox, start_timeout=30.0)
    async with watched(spec) as manager:
        await trio.sleep(1.0)
        await serial.ask(Desk.crash)
        await trio.sleep(30.0 + STRIKE)
        assert manager.strikes()
        serial.release.set()
    assert [each.about for each in told(caplog)] == [  # type: ignore[attr-defined]
        {"actor": "tree"}
    ]


async def test_every_look_is_at_those_that_there_are_then(autojump_clock: MockClock) -> None:
    task = trio.lowlevel.current_task()
    stuck = WatchedLoop("it", Actor("it").mailbox.heartbeat, since=0.0, busy=0.0, task=task)
    watched_loops = [stuck]
    watchdog = Watchdog(lambda: watched_loops, limit_s=WITHIN)
    await trio.sleep(WITHIN)
    assert watchdog.check_loops()
    await trio.sleep(0.1)
    assert not watchdog.check_loops()
    watched_loops.clear()
    assert watchdog.check_loops()


HERE = f"service_manager/{Path(__file__).name}"
LONGEST = 8 * 1024  # characters; of a longer message the log leaves out the middle


class Task:
    """A task that can be looked at."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.never = trio.Event()

    @property
    def stacks(self) -> str:
        assert self.task is not None
        return describe_stacks(self.task)

    async def wait(self, children: int = 0) -> None:
        self.task = trio.lowlevel.current_task()
        async with trio.open_nursery() as nursery:
            for _ in range(children):
                nursery.start_soon(self._wait_inside, "hunter2")
            await self._wait_inside("hunter2")

    async def wait_above(self, other: Task) -> None:
        self.task = trio.lowlevel.current_task()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.wait, 1)

    async def _wait_inside(self, password: str) -> str:
        await self.never.wait()
        return password

    async def wait_for_thread(
        self, release: threading.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        self.task = trio.lowlevel.current_task()

        def wait() -> None:
            trio.from_thread.run_sync(task_status.started)
            release.wait()

        await trio.to_thread.run_sync(wait)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


async def test_a_task_is_told_by_its_name_and_lines_innermost_first(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait)
    await wait_all_tasks_blocked()
    inner = f"{HERE}:{line_of('await self.never.wait()')} _wait_inside"
    outer = f"{HERE}:{line_of('await self._wait_inside(')} wait"
    assert "Task.wait at trio/_sync.py:" in it.stacks
    assert f" < {inner} < {outer}" in it.stacks
    assert "hunter2" not in it.stacks


async def test_the_tasks_below_it_are_told_too(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait, 2)
    await wait_all_tasks_blocked()
    assert it.stacks.count("Task._wait_inside at ") == 2


async def test_the_tasks_below_those_are_told_as_well(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait_above, Task())
    await wait_all_tasks_blocked()
    told = [place.partition(" at ")[0].rpartition(".")[2] for place in it.stacks.split("; ")]
    assert told == ["wait_above", "wait", "_wait_inside"]


async def test_of_many_tasks_some_are_told(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait, 500)
    await wait_all_tasks_blocked()
    assert it.stacks.endswith(f"; and {501 - MAX_TASKS} more tasks")
    assert len(it.stacks) < LONGEST


async def test_a_thread_that_a_task_waits_for_is_told_and_no_other(nursery: trio.Nursery) -> None:
    it, other, release = Task(), Task(), threading.Event()
    try:
        nursery.start_soon(other.wait)
        await nursery.start(it.wait_for_thread, release)
        thread = it.stacks.partition("; thread 'wait from ")[2]
        assert f" < {HERE}:" in thread
        assert "; thread " not in other.stacks
    finally:
        release.set()


async def test_a_task_that_has_ended_is_at_its_end() -> None:
    it = Task()
    with trio.move_on_after(0):
        await it.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note, it)
    assert it.stacks.endswith(" at its end")


async def note(it: Task) -> None:
    it.task = trio.lowlevel.current_task()
