"""What is told while the daemon starts, runs, stops and cannot be kept up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.operator import CrewReport, PartReport, StatusReport
from smartlinkd.service_manager.given import Given
from smartlinkd.service_manager.link import Link
from smartlinkd.service_manager.messenger import Messenger
from smartlinkd.service_manager.reporter import EXTENSION, GRACE, LOOK_EVERY, MARGIN, Reporter
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Intensity
from smartlinkd.supervision.supervisor import Escalated, Supervisor

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
WITHIN = 20.0


@pytest.fixture(autouse=True)
def no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is meant is pytest's own here, of which there is one in a process."""
    monkeypatch.setattr("faulthandler.dump_traceback_later", lambda *_, **__: None)
    monkeypatch.setattr("faulthandler.cancel_dump_traceback_later", lambda: None)


class Part:
    """The only part beside the reporter. One that is `stuck` does not even end when cancelled."""

    def __init__(self) -> None:
        self.stop_takes = 0.0
        self.stuck: trio.Event | None = None
        self.start_takes = 0.0
        self.waiting = 0  # executions
        self.heartbeat = Heartbeat(self._come_round)
        self._stop = trio.Event()
        self._crash = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(self.start_takes)
        task_status.started()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._crashes)
            await self._stop.wait()
            await trio.sleep(self.stop_takes)
            if self.stuck is not None:
                with trio.CancelScope(shield=True):
                    await self.stuck.wait()
            nursery.cancel_scope.cancel()

    async def _crashes(self) -> None:
        await self._crash.wait()
        raise ZeroDivisionError

    def _come_round(self) -> None:
        self.heartbeat.touch()

    def stop(self) -> None:
        self._stop.set()

    def crash(self) -> None:
        self._crash.set()

    def hang(self) -> None:
        self.heartbeat.probe = lambda: None


class Daemon:
    """A whole one, with what it takes to report on it."""

    def __init__(self, link: Link, part: Part) -> None:
        self._part = part
        reporter = Reporter(
            link, status=self._status, parts=self._snapshot, whole=lambda: self.supervisor
        )
        self.supervisor = Supervisor(
            "smartlinkd",
            [
                ChildSpec("service manager", reporter.run, stop=reporter.stop, grace=GRACE),
                ChildSpec(
                    "part", part.run, stop=part.stop, grace=60.0, heartbeats=(part.heartbeat,)
                ),
            ],
            intensity=Intensity(restarts=0),
        )

    def _snapshot(self) -> Any:
        return self.supervisor.snapshot()

    async def _status(self) -> StatusReport:
        await trio.lowlevel.checkpoint()
        parts = [
            PartReport(
                name=part.name,
                state=part.state,
                since=part.since,
                restarts=part.restarts,
                last_error=part.last_error,
                next_retry=part.next_retry,
            )
            for part in self.supervisor.snapshot()
        ]
        crew = CrewReport(
            name="post",
            state="ready",
            default=False,
            base_address=None,
            users=[],
            running=0,
            waiting=self._part.waiting,
        )
        return StatusReport(
            version="1",
            started_at=NOW,
            second_factor=None,
            actors=parts,
            browser=None,
            conversion=None,
            cookie=None,
            accounts=[],
            crews=[crew],
        )


Running = Callable[..., Any]


@pytest.fixture
def part() -> Part:
    return Part()


@pytest.fixture
def running(manager: Manager, part: Part) -> Running:
    @asynccontextmanager
    async def running(
        watchdog: float | None = None, *, attended: bool = True
    ) -> AsyncIterator[Supervisor]:
        link = Link(Given(manager.address, watchdog))
        daemon = Daemon(link, part)
        async with trio.open_nursery() as nursery:
            if attended:
                nursery.start_soon(manager.attend)
            await nursery.start(daemon.supervisor.run)
            link.ready()
            yield daemon.supervisor
            nursery.cancel_scope.cancel()

    return running


async def test_its_line_is_kept_current_and_told_on_change_alone(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    async with running():
        await trio.sleep(60.0)
        part.waiting = 1
        await trio.sleep(60.0)
    assert manager.said("STATUS")[-2:] == [
        "All parts run; 0 executions run, 0 wait",
        "All parts run; 0 executions run, 1 wait",
    ]


async def test_what_changes_all_the_time_is_told_once_a_second(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    async with running():
        for _ in range(1000):
            part.waiting += 1
            await trio.sleep(0.01)
    assert len(manager.said("STATUS")) <= 10 / LOOK_EVERY + 2


async def test_more_time_is_asked_for_until_all_has_started(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.start_takes = 20.0
    async with running():
        assert len(manager.said("EXTEND_TIMEOUT_USEC")) in (20, 21)
        manager.heard.clear()
        await trio.sleep(60.0)
        assert not manager.said("EXTEND_TIMEOUT_USEC")


async def test_a_bug_in_what_is_told_ends_nothing(
    *,
    manager: Manager,
    running: Running,
    part: Part,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    part.waiting = "many"  # type: ignore[assignment]
    async with running(WITHIN):
        await trio.sleep(10.0)
        assert "cannot be told how things are" in caplog.text
        part.waiting = 3
        await trio.sleep(10.0)
        assert manager.said("STATUS") == ["All parts run; 0 executions run, 3 wait"]


async def test_there_are_pings_while_all_is_well(
    manager: Manager, running: Running, autojump_clock: MockClock
) -> None:
    async with running(WITHIN):
        await trio.sleep(10 * WITHIN - 0.1)
    assert len(manager.said("WATCHDOG")) == 40


async def test_where_no_thread_is_to_be_had_for_a_timer_they_go_on(
    manager: Manager,
    running: Running,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("unable to start watchdog thread")

    monkeypatch.setattr("faulthandler.dump_traceback_later", refuse)
    async with running(WITHIN):
        await trio.sleep(10 * WITHIN - 0.1)
    assert len(manager.said("WATCHDOG")) == 40


async def test_there_are_none_while_a_part_is_stuck(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    async with running(WITHIN):
        part.hang()
        await trio.sleep(WITHIN + 0.1)
        pings = len(manager.said("WATCHDOG"))
        await trio.sleep(10 * WITHIN)
        assert len(manager.said("WATCHDOG")) == pings
        part.heartbeat.touch()
        await trio.sleep(WITHIN)
        assert len(manager.said("WATCHDOG")) > pings


async def test_there_are_none_where_nobody_asked_for_them(
    manager: Manager, running: Running, autojump_clock: MockClock
) -> None:
    async with running():
        await trio.sleep(100.0)
    assert not manager.said("WATCHDOG")


async def test_a_stop_is_told_with_who_is_still_to_end_and_how_long_it_may_take(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.stop_takes = 7.0
    async with running(WITHIN) as supervisor:
        await trio.sleep(10.0)
        supervisor.stop()
        await trio.sleep(6.9)
        manager.listen()
        texts = [each.text for each in manager.heard]
        begin = texts.index("STOPPING=1")
        assert texts[begin + 1 : begin + 3] == [
            "STATUS=Stopping: part",
            "EXTEND_TIMEOUT_USEC=10000000",
        ]
        assert texts.count("STOPPING=1") == 1
        assert texts[begin:].count("EXTEND_TIMEOUT_USEC=10000000") == 4
        assert "WATCHDOG=1" in texts[begin:]


async def test_its_end_comes_with_that_of_the_last_part(
    running: Running, autojump_clock: MockClock
) -> None:
    async with running(WITHIN) as supervisor:
        supervisor.stop()
        await trio.sleep(GRACE / 2)
        assert {each.state for each in supervisor.snapshot()} == {ChildState.DOWN}


async def test_more_time_is_asked_for_within_the_graces_alone(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.stuck = trio.Event()
    async with running() as supervisor:
        supervisor.stop()
        await trio.sleep(60.0 + MARGIN)
        asked = len(manager.said("EXTEND_TIMEOUT_USEC"))
        assert asked > 20
        await trio.sleep(600.0)
        assert len(manager.said("EXTEND_TIMEOUT_USEC")) == asked
        part.stuck.set()


async def test_an_end_because_of_a_part_that_cannot_be_kept_up_is_told_as_one(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    with pytest.RaisesGroup(Escalated, flatten_subgroups=True):
        async with running():
            part.crash()
            await trio.sleep_forever()
    assert manager.said("STOPPING") == ["1"]


async def test_what_could_not_be_said_is_said_when_the_manager_listens_again(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.stop_takes = 30.0
    messenger = Messenger(manager.address)
    async with running(attended=False) as supervisor:
        await trio.sleep(10.0)
        while messenger.send("WATCHDOG=1"):
            pass
        supervisor.stop()
        await trio.sleep(5.0)
        assert not manager.said("STOPPING")  # and there is room again
        await trio.sleep(5.0)
        assert manager.said("STOPPING") == ["1"]


async def test_what_could_not_be_said_at_the_start_is_said_while_all_runs(
    manager: Manager, running: Running, autojump_clock: MockClock
) -> None:
    messenger = Messenger(manager.address)
    while messenger.send("WATCHDOG=1"):
        pass
    async with running(attended=False):
        await trio.sleep(5.0)
        assert not manager.said("READY")  # and there is room again
        await trio.sleep(5.0)
        assert manager.said("READY") == ["1"]


def test_an_extension_outlasts_the_time_to_the_next() -> None:
    assert EXTENSION >= 3 * LOOK_EVERY
