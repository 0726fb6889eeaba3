"""The connection to the service manager, and the task that reports the daemon's state over it.

`ServiceManager` exists once, as long as the process. It sends each message at once. Messages that
must arrive and could not be sent stay pending, and `send_pending` sends them in their order. All of
it may be called at any time, also without a service manager.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final

import trio

from smartlinkd.admin.reports import StatusReport
from smartlinkd.errors import describe
from smartlinkd.nurseries import background
from smartlinkd.supervision.child import ChildSnapshot
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.environment import Descriptor, SystemdEnvironment
from smartlinkd.systemd.fd_store import FdStore, is_cookie_name, remove_from_store
from smartlinkd.systemd.notify_socket import NotifySocket
from smartlinkd.systemd.sockets import NAMES, ActivatedSockets, select_sockets
from smartlinkd.systemd.status_line import format_shutdown, format_status
from smartlinkd.systemd.watchdog import Watchdog

logger = logging.getLogger(__name__)

STATUS_INTERVAL_S: Final = 1.0
EXTENSION_S: Final = 10.0
"""Seconds that a start or a stop asks for at a time. So long systemd waits for one that hangs."""
EXTEND_INTERVAL_S: Final = 2.0
GRACE_S: Final = 1.0
"""For the reporter's own end, which takes no time."""
MARGIN_S: Final = 5.0
"""Beyond all graces, for the end of what is cancelled then."""
STANDARD_ERROR: Final = 2


class ServiceManager:
    """The connection to systemd. It closes descriptors that the daemon has no use for.

    Attributes:
        is_starting: True until `notify_ready`.
        watchdog_s: the longest time between two pings, or None without a watchdog.
        sockets: for whoever listens.
        fd_store: for the vault.
    """

    def __init__(self, environment: SystemdEnvironment) -> None:
        self._notify_socket = NotifySocket(environment.notify_socket)
        self._pending: list[str] = []
        self._status = ""
        self.is_starting = True
        self.watchdog_s = environment.watchdog_s if self.is_present else None
        cookies = [each for each in environment.descriptors if is_cookie_name(each.name)]
        self.fd_store = FdStore(self._notify_socket, cookies)
        self.sockets: ActivatedSockets = select_sockets(environment.descriptors)
        known = {*cookies, *self.sockets.main, *chain(*self.sockets.crews.values())}
        for each in environment.descriptors:
            if each not in known:
                self._close_unknown(each)

    @property
    def is_present(self) -> bool:
        """True if there is a service manager that wants to be notified."""
        return self._notify_socket.has_address

    def notify_ready(self) -> None:
        """Report that the daemon has started, or that a reload has ended."""
        self.is_starting = False
        self._send_reliably("READY=1")

    @contextmanager
    def notify_reload(self) -> Iterator[None]:
        """Report a reload for the length of the block, whether it succeeds or not."""
        self._send_reliably(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self.notify_ready()

    def notify_stopping(self) -> None:
        """Report that the daemon has begun to stop."""
        self._send_reliably("STOPPING=1")

    def extend_timeout(self, seconds: float) -> None:
        """Ask for `seconds` from now for the start, reload or stop that is under way."""
        self._notify_socket.send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def ping_watchdog(self) -> None:
        """Report that all loops have shown heartbeats."""
        self._notify_socket.send("WATCHDOG=1")

    def set_status(self, line: str) -> None:
        """Set the line that `systemctl status` shows. It is sent when it changes."""
        if line != self._status and self._notify_socket.send_status(line):
            self._status = line

    def send_pending(self) -> None:
        """Send the messages that must arrive and could not be sent before."""
        while self._pending and self._notify_socket.send(self._pending[0]):
            del self._pending[0]
        self.fd_store.send_pending()

    @contextmanager
    def report_error(self) -> Iterator[None]:
        """Set the error that leaves the block as the last status."""
        try:
            yield
        except Exception as error:
            self.set_status(f"Ended: {describe(error)}")
            raise

    def _send_reliably(self, message: str) -> None:
        if self.is_present:
            self._pending.append(message)
            self.send_pending()

    def _close_unknown(self, unknown: Descriptor) -> None:
        name = unknown.name
        if stat.S_ISSOCK(os.fstat(unknown.number).st_mode):
            text = "nobody is served at the service manager's socket %r: its unit needs %s"
            logger.error(text, name, NAMES)
        else:
            text = "a descriptor of the service manager is of no use here, closed: %r"
            logger.warning(text, name)
        os.close(unknown.number)
        if name.isprintable():
            remove_from_store(self._notify_socket, name)


class StatusReporter:
    """The supervised task that keeps systemd informed. While it is down, no ping is sent.

    It starts before all other children and ends after them, so it also reports a long shutdown.

    Args:
        supervisor: returns the supervisor of everything, which is made after this.
    """

    def __init__(
        self,
        manager: ServiceManager,
        *,
        status: Callable[[], Awaitable[StatusReport]],
        snapshot: Callable[[], Sequence[ChildSnapshot]],
        supervisor: Callable[[], Supervisor],
    ) -> None:
        self._manager = manager
        self._status = status
        self._snapshot = snapshot
        self._supervisor = supervisor
        self._stop = trio.Event()

    def stop(self) -> None:
        """End `run`: all other children have ended."""
        self._stop.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Report until `stop`."""
        self._stop = trio.Event()
        supervisor = self._supervisor()
        async with background(partial(self._ping_watchdog, supervisor)):
            task_status.started()
            async with background(self._report_status):
                await supervisor.wait_ending()
            await self._report_shutdown(limit_s=supervisor.longest_end + MARGIN_S)

    async def _ping_watchdog(self, supervisor: Supervisor) -> None:
        if self._manager.watchdog_s is None:
            return
        faulthandler.enable(file=STANDARD_ERROR)  # systemd ends what hangs by SIGABRT
        watchdog = Watchdog(supervisor.watched_loops, limit_s=self._manager.watchdog_s)
        while True:
            if watchdog.check_loops():
                self._manager.ping_watchdog()
            await trio.sleep(watchdog.interval_s)

    async def _report_status(self) -> None:
        while True:
            self._manager.send_pending()
            if self._manager.is_starting:  # the supervisor limits each child's start
                self._manager.extend_timeout(EXTENSION_S)
            try:
                self._manager.set_status(format_status(await self._status()))
            except Exception:  # a bug in the report must not end the daemon
                logger.exception("the service manager cannot be told how things are")
            await trio.sleep(STATUS_INTERVAL_S)

    async def _report_shutdown(self, *, limit_s: float) -> None:
        self._manager.notify_stopping()
        deadline = trio.current_time() + limit_s
        while not self._stop.is_set():
            self._manager.send_pending()
            self._manager.set_status(format_shutdown(self._snapshot()))
            if trio.current_time() < deadline:
                self._manager.extend_timeout(EXTENSION_S)
            with trio.move_on_after(EXTEND_INTERVAL_S):
                await self._stop.wait()
