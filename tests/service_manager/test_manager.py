"""What the service manager is told: each message, and all of them over the daemon's life."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.admin.reports import CrewReport, PartReport, StatusReport
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Intensity
from smartlinkd.supervision.supervisor import Escalated, Supervisor
from smartlinkd.systemd.environment import NO_SYSTEMD, Descriptor, SystemdEnvironment
from smartlinkd.systemd.manager import (
    EXTENSION_S,
    GRACE_S,
    MARGIN_S,
    STATUS_INTERVAL_S,
    ServiceManager,
    StatusReporter,
)
from smartlinkd.systemd.notify_socket import MAX_STATUS_CHARS, NotifySocket
from smartlinkd.systemd.sockets import NO_SOCKETS

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager, MemfdWith


@pytest.fixture
def service_manager(manager: Manager) -> ServiceManager:
    return ServiceManager(SystemdEnvironment(manager.address, watchdog_s=20.0))


def fill(manager: Manager) -> None:
    notify_socket = NotifySocket(manager.address)
    while notify_socket.send("STATUS=again"):
        pass


def words(manager: Manager) -> list[str]:
    manager.listen()
    return [each.text for each in manager.heard if each.text != "STATUS=again"]


def test_each_message_is_in_the_managers_words(
    manager: Manager, service_manager: ServiceManager
) -> None:
    service_manager.notify_ready()
    service_manager.set_status("All parts run")
    service_manager.ping_watchdog()
    service_manager.notify_stopping()
    service_manager.extend_timeout(12.5)
    assert words(manager) == [
        "READY=1",
        "STATUS=All parts run",
        "WATCHDOG=1",
        "STOPPING=1",
        "EXTEND_TIMEOUT_USEC=12500000",
    ]


def test_what_must_arrive_is_sent_later_in_its_order(
    manager: Manager, service_manager: ServiceManager
) -> None:
    fill(manager)
    service_manager.notify_ready()
    service_manager.notify_stopping()
    assert words(manager) == []
    service_manager.send_pending()
    assert words(manager) == ["READY=1", "STOPPING=1"]
    service_manager.send_pending()
    assert words(manager) == ["READY=1", "STOPPING=1"]


def test_a_cookie_that_could_not_be_sent_is_sent_later(
    manager: Manager, service_manager: ServiceManager, memfd_with: MemfdWith
) -> None:
    fill(manager)
    cookie = memfd_with(b"cookie")
    service_manager.fd_store.keep(cookie)
    os.close(cookie)
    assert words(manager) == []
    service_manager.send_pending()
    manager.listen()
    assert list(manager.store) == ["cookie-1"]
    assert service_manager.fd_store.is_kept


def test_a_reload_begins_with_its_time_and_ends_with_ready(
    manager: Manager, service_manager: ServiceManager
) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with service_manager.notify_reload():
        (message,) = manager.listen()
        assert message.fields["RELOADING"] == "1"
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert before <= int(message.fields["MONOTONIC_USEC"]) <= after
    assert words(manager)[1:] == ["READY=1"]


def test_a_reload_that_fails_ends_with_ready_too(
    manager: Manager, service_manager: ServiceManager
) -> None:
    with pytest.raises(ValueError, match="no"), service_manager.notify_reload():
        raise ValueError("no")
    assert words(manager)[1:] == ["READY=1"]


def test_a_status_is_told_once(manager: Manager, service_manager: ServiceManager) -> None:
    for line in ("a", "a", "b", "a"):
        service_manager.set_status(line)
    assert manager.said("STATUS") == ["a", "b", "a"]


def test_a_status_that_could_not_be_sent_is_told_the_next_time(
    manager: Manager, service_manager: ServiceManager
) -> None:
    fill(manager)
    service_manager.set_status("a")
    manager.listen()
    service_manager.set_status("a")
    assert words(manager) == ["STATUS=a"]


def test_a_status_is_one_line_and_no_second_field(
    manager: Manager, service_manager: ServiceManager
) -> None:
    service_manager.set_status("the portal said:\nREADY=1\x1b[2J" + "x" * MAX_STATUS_CHARS)
    (message,) = manager.listen()
    assert message.fields.keys() == {"STATUS"}
    assert message.fields["STATUS"].startswith("the portal said: READY=1 [2Jxxx")
    assert len(message.fields["STATUS"]) == MAX_STATUS_CHARS


def test_why_it_ended_is_the_last_that_is_told(
    manager: Manager, service_manager: ServiceManager
) -> None:
    with pytest.raises(Escalated), service_manager.report_error():
        raise Escalated("auth needed more than 5 restarts")
    assert manager.said("STATUS") == ["Ended: Escalated: auth needed more than 5 restarts"]


def test_without_a_manager_it_is_false_and_mute() -> None:
    service_manager = ServiceManager(SystemdEnvironment(watchdog_s=20.0))
    assert not service_manager.is_present
    assert service_manager.watchdog_s is None
    service_manager.notify_ready()
    service_manager.set_status("well")
    service_manager.send_pending()
    assert not service_manager.fd_store.is_kept


def test_with_one_it_has_what_was_given(
    manager: Manager, service_manager: ServiceManager, memfd_with: MemfdWith
) -> None:
    assert service_manager.is_present
    assert service_manager.watchdog_s == 20.0
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = Descriptor("http", os.dup(listening.fileno()))
    cookie = Descriptor("cookie-1", memfd_with(b"broken"))
    service_manager = ServiceManager(SystemdEnvironment(manager.address, None, (http, cookie)))
    assert service_manager.sockets.main == (http,)
    assert service_manager.fd_store.restore() is None
    assert manager.said("FDNAME") == ["cookie-1"]
    os.close(http.number)


def test_a_socket_of_a_crew_is_left_open_for_it(
    manager: Manager, is_open: Callable[[int], bool]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        crew = Descriptor("crew-research", os.dup(listening.fileno()))
    service_manager = ServiceManager(SystemdEnvironment(manager.address, None, (crew,)))
    assert service_manager.sockets.crews == {"research": (crew,)}
    assert is_open(crew.number)
    assert manager.listen() == []
    os.close(crew.number)


def test_an_unknown_descriptor_is_closed_and_forgotten(
    manager: Manager,
    memfd_with: MemfdWith,
    is_open: Callable[[int], bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = Descriptor("stored", memfd_with(b"?"))
    ServiceManager(SystemdEnvironment(manager.address, None, (unknown,)))
    assert not is_open(unknown.number)
    (message,) = manager.listen()
    assert message.fields == {"FDSTOREREMOVE": "1", "FDNAME": "stored"}
    assert "of no use here, closed: 'stored'" in caplog.text


def test_a_socket_that_is_nobodys_is_closed_and_told_with_what_its_unit_needs(
    manager: Manager, is_open: Callable[[int], bool], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        unnamed = Descriptor("smartlinkd-research.socket", os.dup(listening.fileno()))
    service_manager = ServiceManager(SystemdEnvironment(manager.address, None, (unnamed,)))
    assert service_manager.sockets == NO_SOCKETS
    assert not is_open(unnamed.number)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "socket 'smartlinkd-research.socket': its unit needs FileDescriptorName=" in caplog.text


def test_a_name_cannot_say_more_than_a_name(manager: Manager, memfd_with: MemfdWith) -> None:
    ServiceManager(
        SystemdEnvironment(manager.address, None, (Descriptor("x\nSTOPPING=1", memfd_with(b"")),))
    )
    assert manager.listen() == []


def test_nothing_given_is_nothing_done(manager: Manager) -> None:
    service_manager = ServiceManager(NO_SYSTEMD)
    assert service_manager.fd_store.restore() is None
    assert manager.listen() == []


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

    def __init__(self, service_manager: ServiceManager, part: Part) -> None:
        self._part = part
        reporter = StatusReporter(
            service_manager,
            status=self._status,
            snapshot=self._snapshot,
            supervisor=lambda: self.supervisor,
        )
        self.supervisor = Supervisor(
            "smartlinkd",
            [
                ChildSpec("service manager", reporter.run, stop=reporter.stop, grace=GRACE_S),
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
        service_manager = ServiceManager(SystemdEnvironment(manager.address, watchdog))
        daemon = Daemon(service_manager, part)
        async with trio.open_nursery() as nursery:
            if attended:
                nursery.start_soon(manager.attend)
            await nursery.start(daemon.supervisor.run)
            service_manager.notify_ready()
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
    assert len(manager.said("STATUS")) <= 10 / STATUS_INTERVAL_S + 2


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
        await trio.sleep(GRACE_S / 2)
        assert {each.state for each in supervisor.snapshot()} == {ChildState.DOWN}


async def test_more_time_is_asked_for_within_the_graces_alone(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.stuck = trio.Event()
    async with running() as supervisor:
        supervisor.stop()
        await trio.sleep(60.0 + MARGIN_S)
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
    notify_socket = NotifySocket(manager.address)
    async with running(attended=False) as supervisor:
        await trio.sleep(10.0)
        while notify_socket.send("WATCHDOG=1"):
            pass
        supervisor.stop()
        await trio.sleep(5.0)
        assert not manager.said("STOPPING")  # and there is room again
        await trio.sleep(5.0)
        assert manager.said("STOPPING") == ["1"]


async def test_what_could_not_be_said_at_the_start_is_said_while_all_runs(
    manager: Manager, running: Running, autojump_clock: MockClock
) -> None:
    notify_socket = NotifySocket(manager.address)
    while notify_socket.send("WATCHDOG=1"):
        pass
    async with running(attended=False):
        await trio.sleep(5.0)
        assert not manager.said("READY")  # and there is room again
        await trio.sleep(5.0)
        assert manager.said("READY") == ["1"]


def test_an_extension_outlasts_the_time_to_the_next() -> None:
    assert EXTENSION_S >= 3 * STATUS_INTERVAL_S
