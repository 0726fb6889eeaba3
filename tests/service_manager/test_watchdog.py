"""The watchdog on real supervisors and mailboxes: it pings while all is well, or busy."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
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
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.watchdog import CHECKS_PER_LIMIT, Watchdog, describe_stacks

LIMIT = 20.0
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
KILLED_AFTER = 2 * LIMIT + 2 * LIMIT / CHECKS_PER_LIMIT
"""Seconds until systemd has killed what hangs: the limit without a heartbeat, the limit without a
ping, and up to a check more for each."""


class Worker:
    """Works for as long as it is told; `hang` cannot be cancelled."""

    def __init__(self, release: trio.Event) -> None:
        self._release = release

    async def work(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def hang(self) -> None:
        with trio.CancelScope(shield=True):
            await self._release.wait()


class Actor:
    def __init__(self, name: str, *, at_once: int = 1) -> None:
        self.mailbox = Mailbox[Worker](name, size=4)
        self.release = trio.Event()
        self._at_once = at_once

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await self.mailbox.serve(Worker(self.release), at_once=self._at_once)

    def spec(self, *, busy: float = 0.0) -> ChildSpec:
        heartbeats = (self.mailbox.heartbeat,)
        return ChildSpec(self.mailbox.name, self.run, heartbeats=heartbeats, busy=busy)

    async def ask(self, work: Callable[[Worker], Awaitable[None]]) -> None:
        with suppress(Refused):
            await self.mailbox.ask(work)


class Pings:
    """The pings of a watchdog, and the longest time between two."""

    def __init__(self, watchdog: Watchdog) -> None:
        self._watchdog = watchdog
        self._last = trio.current_time()
        self.longest = 0.0

    async def run(self) -> None:
        while True:
            self.longest = max(self.longest, trio.current_time() - self._last)
            if self._watchdog.check_loops():
                self._last = trio.current_time()
            await trio.sleep(self._watchdog.interval_s)

    def are_overdue(self) -> bool:
        """True if systemd would have killed the daemon by now."""
        return self.longest > LIMIT


@asynccontextmanager
async def watched(*specs: ChildSpec) -> AsyncIterator[Pings]:
    """A supervisor over children, watched while the body runs."""
    tree = Supervisor("tree", specs, backoff=Backoff(jitter=0.0), wall=lambda: NOON)
    async with trio.open_nursery() as nursery:
        await nursery.start(tree.run)
        pings = Pings(Watchdog(tree.watched_loops, limit_s=LIMIT))
        nursery.start_soon(pings.run)
        yield pings
        tree.stop()
        nursery.cancel_scope.cancel()


def hung(caplog: pytest.LogCaptureFixture) -> list[object]:
    """The parts that were logged as hung."""
    found = [each for each in caplog.records if getattr(each, "event", "") is LogEvent.WATCHDOG]
    return [each.__dict__["about"]["actor"] for each in found]


@pytest.fixture
def serial() -> Actor:
    return Actor("serial")


@pytest.fixture
def concurrent() -> Actor:
    return Actor("concurrent", at_once=3)


async def test_loop_whose_slots_are_all_busy_for_its_allowance_is_pinged_for(
    autojump_clock: MockClock, serial: Actor, concurrent: Actor
) -> None:
    async def ask_on(actor: Actor, seconds: float, each: float) -> None:
        while True:
            nursery.start_soon(actor.ask, partial(Worker.work, seconds=seconds))
            await trio.sleep(each)

    specs = serial.spec(), concurrent.spec(busy=60.0)
    async with watched(*specs) as pings, trio.open_nursery() as nursery:
        nursery.start_soon(ask_on, serial, LIMIT - 1, 1.0)
        nursery.start_soon(ask_on, concurrent, 60.0, 20.0)
        await trio.sleep(3600.0)
        assert not pings.are_overdue()
        nursery.cancel_scope.cancel()


async def test_webhooks_that_wait_for_a_full_journal_are_pinged_for(
    autojump_clock: MockClock,
) -> None:
    class FullStore:
        async def due_deliveries(self, *_: object, **__: object) -> list[Delivery]:
            await trio.lowlevel.checkpoint()
            raise Unavailable("the disk is full", retry_after=1)

    webhooks = WebhookDispatcher(cast("Store", FullStore()), allow=(), key=None)
    spec = ChildSpec("webhooks", webhooks.run, heartbeats=(webhooks.heartbeat,))
    async with watched(spec) as pings:
        await trio.sleep(3600.0)
        assert not pings.are_overdue()


async def test_call_that_hangs_stops_the_pings_and_is_logged_once_with_its_stack(
    autojump_clock: MockClock, serial: Actor, concurrent: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec(), concurrent.spec()) as pings:
        with trio.move_on_after(1.0):  # a caller that gives up mends nothing
            await serial.ask(Worker.hang)
        await trio.sleep(LIMIT + LIMIT / CHECKS_PER_LIMIT)
        assert hung(caplog) == ["serial"]  # before systemd kills the daemon
        assert not pings.are_overdue()
        await trio.sleep(KILLED_AFTER)
        assert pings.are_overdue()
        serial.release.set()
    (text,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert text.startswith("serial has shown no sign of life for 25 s: ")
    assert "restarts the daemon after 20 s of that" in text
    assert "Supervisor._instance at " in text
    assert " hang < supervision/actor.py:" in text


async def test_loop_that_goes_on_is_logged_and_pinged_for_again(
    autojump_clock: MockClock, serial: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(serial.spec()) as pings, trio.open_nursery() as nursery:
        nursery.start_soon(serial.ask, Worker.hang)
        await trio.sleep(30.0)
        serial.release.set()
        await trio.sleep(60.0)
        assert not pings.are_overdue()
    assert "serial goes on" in caplog.text


# Stacks


async def stacks_of(work: Callable[..., Awaitable[object]], *args: object) -> str:
    """Return the stacks of a task while it waits."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work, *args)
        await wait_all_tasks_blocked()
        (task,) = nursery.child_tasks
        stacks = describe_stacks(task)
        nursery.cancel_scope.cancel()
    return stacks


async def wait(password: str) -> None:
    await wait_inside(password)


async def wait_inside(password: str) -> str:
    await trio.Event().wait()
    return password


async def wait_with(generations: int) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, "hunter2")
        if generations > 1:
            nursery.start_soon(wait_with, generations - 1)


async def test_stacks_show_frames_innermost_first_without_variables() -> None:
    stacks = await stacks_of(wait, "hunter2")
    assert "test_watchdog.wait at trio/_sync.py:" in stacks
    inner, outer = stacks.split(" < ")[1:3]
    assert inner.startswith("service_manager/test_watchdog.py:")
    assert inner.endswith(" wait_inside")
    assert outer.endswith(" wait")
    assert "hunter2" not in stacks


async def test_stacks_show_descendants() -> None:
    stacks = await stacks_of(wait_with, 2)
    names = [place.partition(" at ")[0].rpartition(".")[2] for place in stacks.split("; ")]
    assert names[0] == "wait_with"
    assert sorted(names[1:]) == ["wait", "wait", "wait_with"]
