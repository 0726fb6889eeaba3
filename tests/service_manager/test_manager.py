"""The notifications that systemd gets, one by one and over the daemon's life."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.admin.reports import PartReport, StatusReport
from smartlinkd.memfd import sealed_file
from smartlinkd.supervision.child import ChildSpec, ChildState
from smartlinkd.supervision.heartbeat import Heartbeat
from smartlinkd.supervision.policy import Intensity
from smartlinkd.supervision.supervisor import Escalated, Supervisor
from smartlinkd.systemd.environment import Descriptor, SystemdEnvironment
from smartlinkd.systemd.manager import (
    GRACE_S,
    MARGIN_S,
    STATUS_INTERVAL_S,
    ServiceManager,
    StatusReporter,
)
from smartlinkd.systemd.notify_socket import MAX_STATUS_CHARS
from smartlinkd.systemd.sockets import NO_SOCKETS
from smartlinkd.vault.record import CookieRecord
from tests.fakes.passed_sockets import is_open
from tests.service_manager.conftest import Manager, report
from tests.supervision.conftest import Child

LIMIT = 20.0


@pytest.fixture
def service_manager(manager: Manager) -> ServiceManager:
    return ServiceManager(SystemdEnvironment(manager.address, watchdog_s=LIMIT))


def given(manager: Manager, *descriptors: Descriptor) -> ServiceManager:
    return ServiceManager(SystemdEnvironment(manager.address, None, descriptors))


def texts(manager: Manager) -> list[str]:
    manager.listen()
    return [each.text for each in manager.heard if each.text != "FILLING=1"]


def test_notifications_are_in_systemds_words(
    manager: Manager, service_manager: ServiceManager
) -> None:
    service_manager.notify_ready()
    for line in ("a", "a", "b"):
        service_manager.set_status(line)  # sent when it changes
    service_manager.ping_watchdog()
    service_manager.notify_stopping()
    service_manager.extend_timeout(12.5)
    assert texts(manager) == [
        *("READY=1", "STATUS=a", "STATUS=b", "WATCHDOG=1", "STOPPING=1"),
        "EXTEND_TIMEOUT_USEC=12500000",
    ]


def test_full_queue_delays_what_must_arrive_and_keeps_its_order(
    manager: Manager, service_manager: ServiceManager
) -> None:
    manager.fill()
    service_manager.notify_ready()
    service_manager.notify_stopping()
    service_manager.set_status("a")
    synced_at = datetime(2026, 5, 4, tzinfo=UTC)
    record = CookieRecord(cookie_text="a=b", account_name="", synced_at=synced_at)
    service_manager.fd_store.keep(record)
    assert texts(manager) == []
    for _ in range(2):
        service_manager.send_pending()
        service_manager.set_status("a")
    assert texts(manager) == [
        *("READY=1", "STOPPING=1", "FDSTORE=1\nFDNAME=cookie-1\nFDPOLL=0", "STATUS=a")
    ]
    assert service_manager.fd_store.is_kept


def test_reload_begins_with_its_time_and_ends_with_ready(
    manager: Manager, service_manager: ServiceManager
) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    with service_manager.notify_reload():
        (message,) = manager.listen()
    with pytest.raises(ValueError, match="no"), service_manager.notify_reload():
        raise ValueError("no")
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert before <= int(message.fields["MONOTONIC_USEC"]) <= after
    assert [text.partition("\n")[0] for text in texts(manager)] == ["RELOADING=1", "READY=1"] * 2


def test_status_is_one_line_and_no_second_field(
    manager: Manager, service_manager: ServiceManager
) -> None:
    service_manager.set_status("the portal said:\nREADY=1\x1b[2J" + "x" * MAX_STATUS_CHARS)
    (message,) = manager.listen()
    assert message.fields.keys() == {"STATUS"}
    assert message.fields["STATUS"].startswith("the portal said: READY=1 [2Jxxx")
    assert len(message.fields["STATUS"]) == MAX_STATUS_CHARS


def test_service_manager_without_an_address_is_absent_and_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service_manager = ServiceManager(SystemdEnvironment(watchdog_s=LIMIT))
    assert not service_manager.is_present
    assert service_manager.watchdog_s is None
    service_manager.notify_ready()
    service_manager.set_status("well")
    service_manager.send_pending()
    assert service_manager.fd_store.restore() is None
    assert not service_manager.fd_store.is_kept
    assert not caplog.text


# Descriptors that systemd passed


def test_descriptors_are_passed_on_by_their_names(manager: Manager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        http = Descriptor("http", os.dup(listening.fileno()))
        crew = Descriptor("crew-research", os.dup(listening.fileno()))
    cookie = Descriptor("cookie-1", sealed_file("kept", b"broken"))
    service_manager = given(manager, http, crew, cookie)
    assert service_manager.sockets.main == (http,)
    assert service_manager.sockets.crews == {"research": (crew,)}
    assert manager.listen() == []
    assert service_manager.fd_store.restore() is None
    assert manager.said("FDNAME") == ["cookie-1"]
    for each in (http, crew):
        assert is_open(each.number)
        os.close(each.number)


@pytest.mark.parametrize("name", ["stored", "x\nSTOPPING=1"])
def test_unknown_descriptor_is_closed_and_removed_from_the_store(
    manager: Manager, name: str
) -> None:
    unknown = Descriptor(name, sealed_file("kept", b"?"))
    given(manager, unknown)
    assert not is_open(unknown.number)
    removal = "FDSTOREREMOVE=1\nFDNAME=stored"
    assert texts(manager) == ([removal] if name == "stored" else [])  # a name is no second field


def test_socket_without_a_known_name_is_closed_and_logged_with_its_remedy(
    manager: Manager, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        unnamed = Descriptor("smartlinkd-research.socket", os.dup(listening.fileno()))
    assert given(manager, unnamed).sockets == NO_SOCKETS
    assert not is_open(unnamed.number)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "socket 'smartlinkd-research.socket': its unit needs FileDescriptorName=" in caplog.text


# Over the daemon's life


class Part(Child):
    """The only part of a daemon beside the reporter."""

    def __init__(self) -> None:
        super().__init__("part", [])
        self.release: trio.Event | None = None  # until then it does not even end when cancelled
        self.note: str | None = ""  # in the status
        self.heartbeat = Heartbeat(self._come_round)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            await super().run(task_status)
        finally:
            if self.release is not None:
                with trio.CancelScope(shield=True):
                    await self.release.wait()

    def _come_round(self) -> None:
        self.heartbeat.touch()


Running = Callable[..., Any]


@pytest.fixture
def part() -> Part:
    return Part()


@pytest.fixture
def running(manager: Manager, part: Part) -> Running:
    """A daemon of one part and the reporter."""
    supervisor = Supervisor("not made yet", [])

    async def status() -> StatusReport:
        await trio.lowlevel.checkpoint()
        (_, child) = supervisor.snapshot()
        assert part.note is not None, "a bug"
        state = ChildState.WAITING if part.note else child.state
        name = f"part{part.note}"
        return report(
            PartReport.model_construct(name=name, state=state, restarts=0, last_error=None)
        )

    @asynccontextmanager
    async def running(
        watchdog_s: float | None = None, *, attended: bool = True
    ) -> AsyncIterator[Supervisor]:
        service_manager = ServiceManager(SystemdEnvironment(manager.address, watchdog_s))
        reporter = StatusReporter(
            service_manager,
            status=status,
            snapshot=lambda: list(supervisor.snapshot()),
            supervisor=lambda: supervisor,
        )
        nonlocal supervisor
        beats = (part.heartbeat,)
        supervisor = Supervisor(
            "smartlinkd",
            [
                ChildSpec("service manager", reporter.run, stop=reporter.stop, grace=GRACE_S),
                ChildSpec("part", part.run, stop=part.stop, grace=60.0, heartbeats=beats),
            ],
            intensity=Intensity(restarts=0),
        )
        async with trio.open_nursery() as nursery:
            if attended:
                nursery.start_soon(manager.attend)
            await nursery.start(supervisor.run)
            service_manager.notify_ready()
            yield supervisor
            nursery.cancel_scope.cancel()

    return running


async def test_status_is_sent_on_change_and_at_most_once_an_interval(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    async with running():
        await trio.sleep(60.0)
        assert manager.said("STATUS")[-1] == "All parts run"
        manager.heard.clear()
        for number in range(1000):
            part.note = f" {number}"
            await trio.sleep(0.01)
    assert 5 <= len(manager.said("STATUS")) <= 10 / STATUS_INTERVAL_S + 2


async def test_bug_in_the_status_is_logged_and_the_reporter_goes_on(
    *,
    manager: Manager,
    running: Running,
    part: Part,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    part.note = None
    async with running(LIMIT):
        await trio.sleep(10.0)
        assert "a bug" in caplog.text
        assert manager.said("WATCHDOG")
        part.note = ""
        await trio.sleep(10.0)
        assert manager.said("STATUS") == ["All parts run"]


async def test_start_asks_for_more_time_until_all_parts_serve(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.before = partial(trio.sleep, 20.0)
    async with running():
        assert len(manager.said("EXTEND_TIMEOUT_USEC")) in (20, 21)
        manager.heard.clear()
        await trio.sleep(60.0)
        assert not manager.said("EXTEND_TIMEOUT_USEC")


@pytest.mark.parametrize(("watchdog_s", "pings"), [(LIMIT, 40), (None, 0)])
async def test_pings_are_sent_where_systemd_wants_them(
    *,
    manager: Manager,
    running: Running,
    autojump_clock: MockClock,
    watchdog_s: float | None,
    pings: int,
) -> None:
    async with running(watchdog_s):
        await trio.sleep(10 * LIMIT - 0.1)
    assert len(manager.said("WATCHDOG")) == pings


async def test_pings_stop_while_a_part_hangs(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    async with running(LIMIT):
        part.heartbeat.probe = lambda: None
        await trio.sleep(LIMIT + 0.1)
        pings = len(manager.said("WATCHDOG"))
        await trio.sleep(10 * LIMIT)
        assert len(manager.said("WATCHDOG")) == pings
        part.heartbeat.touch()
        await trio.sleep(LIMIT)
        assert len(manager.said("WATCHDOG")) > pings


async def test_stop_reports_the_parts_that_are_left_and_asks_for_more_time(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.stop_takes = 7.0
    async with running(LIMIT) as supervisor:
        await trio.sleep(10.0)
        supervisor.stop()
        await trio.sleep(6.9)
        sent = texts(manager)
        sent = sent[sent.index("STOPPING=1") :]
        assert sent[1:3] == ["STATUS=Stopping: part", "EXTEND_TIMEOUT_USEC=10000000"]
        assert sent.count("STOPPING=1") == 1
        assert sent.count("EXTEND_TIMEOUT_USEC=10000000") == 4
        assert "WATCHDOG=1" in sent
        await trio.sleep(0.1 + GRACE_S / 2)
        assert {each.state for each in supervisor.snapshot()} == {ChildState.DOWN}


async def test_stop_that_hangs_asks_for_more_time_within_the_graces_alone(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    part.release = trio.Event()
    async with running() as supervisor:
        supervisor.stop()
        await trio.sleep(60.0 + MARGIN_S)
        asked = len(manager.said("EXTEND_TIMEOUT_USEC"))
        assert asked > 20
        await trio.sleep(600.0)
        assert len(manager.said("EXTEND_TIMEOUT_USEC")) == asked
        part.release.set()


async def test_escalation_is_reported_as_a_stop(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock
) -> None:
    with pytest.RaisesGroup(Escalated, flatten_subgroups=True):
        async with running():
            part.fail()
            await trio.sleep_forever()
    assert manager.said("STOPPING") == ["1"]


@pytest.mark.parametrize("word", ["READY", "STOPPING"])
async def test_full_queue_delays_ready_and_stopping_until_systemd_listens_again(
    manager: Manager, running: Running, part: Part, autojump_clock: MockClock, word: str
) -> None:
    part.stop_takes = 30.0
    if word == "READY":
        manager.fill()
    async with running(attended=False) as supervisor:
        await trio.sleep(5.0)
        if word == "STOPPING":
            manager.fill()
            supervisor.stop()
            await trio.sleep(5.0)
        assert manager.said(word) == []  # this makes room
        await trio.sleep(5.0)
        assert manager.said(word) == ["1"]
