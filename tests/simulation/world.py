"""A simulated world: one daemon, the marketplace, the machine, its clock, and the log.

The first failed check ends the simulation, so that the end of the log shows its cause.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import outcome
import pytest
import trio

from smartlinkd.auth import passwords
from smartlinkd.config import build
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.net.client import HttpClient
from smartlinkd.state_files import NotSaved, StateUnusable
from smartlinkd.store.actor import Store
from smartlinkd.store.errors import UnusableStore
from smartlinkd.supervision.supervisor import Escalated
from tests.fakes.disk import Disk
from tests.fakes.internet import Internet
from tests.fakes.network import Json
from tests.faults.sockets import SentRequest, request
from tests.faults.stage import GONE, WallClock, matches, wait_until
from tests.hygiene.tasks import daemon_tasks
from tests.simulation.conditions import Conditions
from tests.simulation.configuration import configuration
from tests.simulation.crews import CREWS
from tests.simulation.executions import Executions
from tests.simulation.expectations import Expectations
from tests.simulation.life import DaemonRun
from tests.simulation.log import MARK, InjectedCrash, Log, Records
from tests.simulation.machine import Machine, Workers
from tests.simulation.receivers import HOSTS, CheckedReceiver
from tests.simulation.seeded import random_for
from tests.simulation.upstream import CheckedNetwork, NetworkTransport

T = TypeVar("T")
ANSWERED = 2 * 8.0 + 0.5
"""Seconds in which a request is answered: the deadlines of two actors' calls."""
EXPECTED_ERRORS = (
    "Chromium cannot be kept up",  # after many failed launches
    "the daemon starts when there is room",
    "the fork server does not answer and is killed",
    "its reaper was killed",
    ": nothing new can be kept until there is room",
)
"""Parts of log messages that are allowed while faults are injected."""
STOPPED_WITHIN = 30.0
"""Seconds from SIGTERM to the daemon's end: the graces of its parts."""


class Call(SentRequest):
    """A request and its answer."""

    @property
    def status(self) -> int:
        """The HTTP status; 0 without a complete answer."""
        whole = self.exchange.ended.is_set() and not self.exchange.fault
        return self.exchange.status if whole else 0

    @property
    def error(self) -> str:
        return str(self.answer.get("error", ""))


class World(Conditions):
    """A simulated world. `folder` is empty, and nobody else uses it."""

    def __init__(
        self, seed: int, folder: Path, log: Log, wall: WallClock, patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__()
        self.seed = seed
        self.log = log
        self.wall = wall
        self.failures: list[str] = []
        self.scope = trio.CancelScope()
        self.expectations = Expectations(self.fail)
        self.records = Records(log, self.is_expected, self.fail)
        # The daemon
        self.daemon: DaemonRun | None = None
        self.starts = 0
        self.restart_delay = 1.0
        """Seconds from the daemon's end until the service manager starts it again."""
        self._folder = folder
        self._state = folder / "state-0"
        self._state.mkdir(mode=0o700)
        self._calls: set[Call] = set()
        self.crash_next_dispatch = False
        self.slow_threads = 0.0
        """Seconds that each call in a thread takes."""
        # Its surroundings
        self.network = CheckedNetwork(self.expectations, self.fail, log)
        self.portal = self.network.portal
        self.machine = Machine(folder, self.network, random_for(seed, "beats"))
        self.machine.fail = self.fail
        self.executions = Executions(self.fail)
        self.tokens: dict[tuple[str, str], str] = {}
        """Bearer tokens, by crew and user; "" is the organization."""
        self.workers = Workers(folder, self.executions)
        self.internet = Internet()
        self.receivers = [CheckedReceiver(host, self.executions, self.fail) for host in HOSTS]
        self.internet.receivers.update(zip(HOSTS, self.receivers, strict=True))
        self.disk = Disk()
        self._http = HttpClient(NetworkTransport(self.network))
        self._install(patch)

    def _install(self, patch: pytest.MonkeyPatch) -> None:
        self.machine.install(patch)
        self.workers.install(patch)
        self.internet.install(patch)
        self.disk.install(patch)
        patch.setattr(trio.to_thread, "run_sync", self._delayed(trio.to_thread.run_sync))
        patch.setattr(Store, "due_deliveries", self._with_injected_crash(Store.due_deliveries))
        patch.setattr(passwords, "matches", matches)

    def _with_injected_crash(
        self, query: Callable[..., Awaitable[T]]
    ) -> Callable[..., Awaitable[T]]:
        """Wrap the dispatcher's query, so that it can crash: the dispatcher has no mailbox."""

        async def run(*args: Any, **more: Any) -> T:
            if self.crash_next_dispatch:
                self.crash_next_dispatch = False
                raise InjectedCrash(f"webhooks were {MARK}")
            return await query(*args, **more)

        return run

    def _delayed(self, run_sync: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def run(*args: Any, **more: Any) -> T:
            if not self.slow_threads:
                return await run_sync(*args, **more)
            await trio.lowlevel.checkpoint_if_cancelled()
            with trio.CancelScope(shield=True):  # a slow thread has begun: it does its work
                await trio.sleep(self.slow_threads)
                result = await outcome.acapture(run_sync, *args, **more)
            return result.unwrap()

        return run

    def is_expected(self, text: str, fault: BaseException | None) -> bool:
        """True if an injected fault explains the log message or the error."""
        if fault is None:
            return any(due in text for due in EXPECTED_ERRORS) and self.healthy_since == inf
        if isinstance(fault, InjectedCrash) or MARK in str(fault):
            return True
        disk = (UnusableStore, StateUnusable, NotSaved, trio.TooSlowError, Escalated)
        return isinstance(fault, disk) and self.had_disk_fault

    def fail(self, what: str) -> None:
        """Record a failed check, and end the simulation."""
        if not self.scope.cancel_called:
            self.failures.append(what)
            self.log.note(f"FAILED {what}")
            self.records.is_muted = True
            self.scope.cancel()

    # The daemon

    def use_nursery(self, nursery: trio.Nursery) -> None:
        """Run the tasks of workers and receivers, which outlive a daemon, in `nursery`."""
        self.workers.nursery = self.internet.nursery = nursery

    async def supervise_daemon(self) -> None:
        """Start the daemon again after each end, as a service manager does."""
        while True:
            self.daemon = DaemonRun(
                build(configuration(self._state, self.machine.executable, self.workers.program)),
                self._http,
                self.wall.now,
            )
            self.starts += 1
            self.log.note(f"daemon {self.starts} starts", count="starts of the daemon")
            fault = await self.daemon.run()
            await wait_until(lambda: not self.workers.count(), GONE)
            self.records.is_muted = False
            kept = {pause.account for pause in PauseStore(self._state).loaded}
            self.expectations.daemon_ended(kept, had_disk_fault=self.had_disk_fault)
            self.log.note(f"daemon {self.starts} ended: {fault or 'as requested'}")
            if fault is not None and not self.is_expected(str(fault), fault):
                self.fail(f"the daemon has given up: {fault}")
            self._check_nothing_left()
            await trio.sleep(self.restart_delay)

    async def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        if self.daemon is not None and self.daemon.serving:
            self.daemon.supervisor.stop()
            with trio.move_on_after(STOPPED_WITHIN) as patience:
                await self.daemon.ended.wait()
            if patience.cancelled_caught:
                self.fail(f"the daemon had not ended {STOPPED_WITHIN:g} s after SIGTERM")

    def kill(self) -> None:
        """Send SIGKILL. The next daemon gets a copy of the disk as it is now."""
        if self.daemon is None or not self.daemon.is_alive:
            return
        self.records.is_muted = True
        self._state = self._folder / f"state-{self.starts}"
        shutil.copytree(self.daemon.directory, self._state, ignore=_ignore_runs)
        for process in self.machine.running:
            process.kill()
        self.daemon.kill()

    @property
    def is_serving(self) -> bool:
        return self.daemon is not None and self.daemon.serving

    def ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        token: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> Call:
        """Send a request without waiting."""
        call = Call(request(method, path, body, token, headers), trio.current_time())
        if self.daemon is None:
            call.exchange.end("connection refused")
        else:
            self.daemon.door.ask(call.exchange, call.gone)
        self._calls = {each for each in self._calls if not each.exchange.ended.is_set()}
        self._calls.add(call)
        return call

    async def answered(
        self,
        client: str,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        token: str = "",
        headers: Mapping[str, str] = MappingProxyType({}),
        within: float = ANSWERED,
        may_wait_for_disk: bool = False,
        refusal: int = 503,
    ) -> Call:
        """Send a request, and check that its answer comes within `within` seconds.

        With `may_wait_for_disk` a disk fault excuses a late answer. The answer is 200, 503 or
        `refusal`; there may be none (0).
        """
        call = self.ask(method, path, body, token=token, headers=headers)
        try:
            with trio.move_on_after(within):
                await call.wait()
        finally:
            call.gone.set()
        is_excused = may_wait_for_disk and self.had_disk_fault
        if not call.exchange.ended.is_set() and not is_excused:
            self.fail(f"{method} {path} was not answered within {within:g} s")
        if call.status not in (0, 200, 503, refusal):
            self.fail(f"{method} {path} was answered {call.status}: {call.exchange.body!r}")
        self.log.note(f"{client}: {method} {path} {call.status}", count="requests")
        return call

    def disconnect_clients(self) -> None:
        for call in self._calls:
            call.gone.set()

    async def read_tokens(self) -> None:
        """Read the bearer tokens of all crews, which never change."""
        assert self.daemon is not None
        for crew, table in CREWS.items():
            for user in ("", *table.get("users", ())):
                token = await self.daemon.crews.tokens.show(crew, user)
                self.tokens[crew, user] = token.get_secret_value()

    # Faults

    def set_clock(self, seconds: float) -> None:
        self.wall.offset += seconds
        self.clock_set = trio.current_time()

    def heal_portal(self) -> None:
        self.portal.armed.clear()
        self.invalid_answers.end()

    def heal_disk(self) -> None:
        self.disk.heal()
        self.slow_threads = 0.0
        self.disk_fault.end()

    # Resources

    @property
    def is_idle(self) -> bool:
        """True if no client is busy and no execution waits or runs."""
        load = self.daemon.crews.executor.load() if self.daemon is not None else {}
        return not self.is_anybody_busy and not any(
            each.running or each.waiting for each in load.values()
        )

    def folders(self) -> int:
        """Return the number of folders of browsers and workers."""
        runs = self.daemon.directory / "runs" if self.daemon is not None else self._folder / "none"
        found = [*self.machine.profiles.iterdir(), *(runs.iterdir() if runs.exists() else ())]
        return len(found)

    def left(self) -> tuple[int, int, int]:
        """Return the numbers of browsers, of folders, and of workers and reapers."""
        return len(self.machine.running), self.folders(), self.workers.count()

    def _check_nothing_left(self) -> None:
        if any(left := self.left()):
            self.fail(f"{left} browsers, folders and workers are left by a daemon that has ended")
        if tasks := daemon_tasks():
            self.fail(f"tasks are left by a daemon that has ended: {tasks}")


_ignore_runs = shutil.ignore_patterns("runs")
