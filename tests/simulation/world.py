"""A world with one daemon in it: the marketplace, the machine, the clock on the wall, and the log.

What is wrong anywhere is told to `broken`, and that is the end of the world: whoever looks for the
reason wants the moment, and not what came of it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from smartlinkd.auth import passwords
from smartlinkd.config import build
from smartlinkd.conversion.pause_store import PauseStore
from smartlinkd.net.client import HttpClient
from smartlinkd.sandbox.portal import portal_app
from smartlinkd.sandbox.shop import shop_app, short_links_app
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.state_files import NotSaved, StateUnusable
from smartlinkd.store.actor import Store
from smartlinkd.store.errors import UnusableStore
from smartlinkd.supervision.supervisor import Escalated
from tests.fakes.disk import Disk
from tests.fakes.internet import Internet
from tests.fakes.network import HOLD, ORIGINS, Json, without_threads
from tests.faults.door import request
from tests.faults.stage import GONE, WallClock, matches, wait_until
from tests.hygiene.tasks import daemon_tasks
from tests.simulation.books import Books
from tests.simulation.calls import Call
from tests.simulation.configuration import configuration
from tests.simulation.crews import CREWS
from tests.simulation.executions import Executions
from tests.simulation.life import Life
from tests.simulation.log import MARK, Log, Records, Struck
from tests.simulation.machine import Machine, Workers
from tests.simulation.receivers import HOSTS, Watched
from tests.simulation.seeded import dice
from tests.simulation.upstream import Plain, Upstream
from tests.simulation.weather import Weather

T = TypeVar("T")
ANSWERED = 2 * 8.0 + 0.5
"""Seconds for who asks, and as many for what is asked."""
DUE = (
    "Chromium cannot be kept up",  # when launches have failed for long
    "the daemon starts when there is room",
    "the fork server does not answer and is killed",
    "its reaper was killed",
    ": nothing new can be kept until there is room",
)
"""Errors that may be told in a storm."""
STOPPED_WITHIN = 30.0
"""Seconds in which a daemon that was told to stop has ended: the graces of its parts."""


class World(Weather):
    """See above. `folder` is of the world's own, and empty."""

    def __init__(
        self, seed: int, folder: Path, log: Log, wall: WallClock, patch: pytest.MonkeyPatch
    ) -> None:
        super().__init__()
        self.seed = seed
        self.log = log
        self.wall = wall
        self.failures: list[str] = []
        self.scope = trio.CancelScope()
        self.books = Books(self.broken)
        self.records = Records(log, self.is_due, self.broken)
        # The daemon
        self.life: Life | None = None
        self.lives = 0
        self.down_for = 1.0
        """Seconds until the service manager starts it again."""
        self._folder = folder
        self._state = folder / "state-0"
        self._state.mkdir(mode=0o700)
        self._calls: set[Call] = set()
        self.strike_webhooks = False
        self.slow_threads = 0.0
        """Seconds that whatever is done in a thread takes."""
        # What it runs on
        self.portal = SandboxState(ORIGINS, HOLD)
        apps = (portal_app(self.portal), shop_app(self.portal), short_links_app(self.portal))
        origins = (ORIGINS.portal, ORIGINS.shop, ORIGINS.short)
        self.network = Upstream(dict(zip(origins, map(without_threads, apps), strict=True)))
        self.network.watch(self.books, self.broken, log)
        self.machine = Machine(folder, self.network, dice(seed, "beats"))
        self.machine.broken = self.broken
        self.executions = Executions(self.broken)
        self.tokens: dict[tuple[str, str], str] = {}
        """Bearer tokens, by crew and user; "" is the organization."""
        self.workers = Workers(folder, self.executions)
        self.internet = Internet()
        self.receivers = [self._receiver(host) for host in HOSTS]
        self.disk = Disk()
        self._http = HttpClient(Plain(self.network))
        self._install(patch)

    def _receiver(self, host: str) -> Watched:
        receiver = self.internet.receivers[host] = Watched(host)
        receiver.executions, receiver.broken = self.executions, self.broken
        return receiver

    def _install(self, patch: pytest.MonkeyPatch) -> None:
        self.machine.install(patch)
        self.workers.install(patch)
        self.internet.install(patch)
        self.disk.install(patch)
        patch.setattr(trio.to_thread, "run_sync", self._slowly(trio.to_thread.run_sync))
        patch.setattr(Store, "due_deliveries", self._looking(Store.due_deliveries))
        patch.setattr(passwords, "matches", matches)

    def _looking(self, look: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        """The dispatcher has no mailbox, and can be struck when it looks for calls."""

        async def looked(*args: Any, **more: Any) -> T:
            if self.strike_webhooks:
                self.strike_webhooks = False
                raise Struck(f"webhooks were {MARK}")
            return await look(*args, **more)

        return looked

    def _slowly(self, run_sync: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def run(*args: Any, **more: Any) -> T:
            if self.slow_threads:
                await trio.lowlevel.checkpoint_if_cancelled()
                with trio.CancelScope(shield=True):
                    await trio.sleep(self.slow_threads)
            return await run_sync(*args, **more)

        return run

    def is_due(self, text: str, fault: BaseException | None) -> bool:
        """Whether this is what has to come of what the nemesis has done."""
        if fault is None:
            return any(due in text for due in DUE) and self.fine_since == inf
        if isinstance(fault, Struck) or MARK in str(fault):
            return True
        disk = (UnusableStore, StateUnusable, NotSaved, trio.TooSlowError, Escalated)
        return isinstance(fault, disk) and self.disk_is_spoilt

    def broken(self, what: str) -> None:
        """A promise is. The world ends."""
        if not self.scope.cancel_called:
            self.failures.append(what)
            self.log.note(f"BROKEN {what}")
            self.records.deaf = True
            self.scope.cancel()

    # The daemon

    def inhabit(self, nursery: trio.Nursery) -> None:
        """Have what outlives a daemon live here."""
        self.workers.nursery = self.internet.nursery = nursery

    async def keep_daemon(self) -> None:
        """What a service manager does."""
        while True:
            self.life = Life(
                build(configuration(self._state, self.machine.executable, self.workers.program)),
                self._http,
                self.wall.now,
            )
            self.lives += 1
            self.log.note(f"daemon {self.lives} starts", count="starts of the daemon")
            fault = await self.life.live()
            await wait_until(lambda: not self.workers.count(), GONE)
            self.records.deaf = False
            kept = {pause.account for pause in PauseStore(self._state).loaded}
            self.books.daemon_ended(kept, spoilt=self.disk_is_spoilt)
            self.log.note(f"daemon {self.lives} ended: {fault or 'as it was told to'}")
            if fault is not None and not self.is_due(str(fault), fault):
                self.broken(f"the daemon has given up: {fault}")
            self._check_nothing_left()
            await trio.sleep(self.down_for)

    async def stop(self) -> None:
        """SIGTERM; returns when it has ended."""
        if self.life is not None and self.life.serving:
            self.life.stop()
            with trio.move_on_after(STOPPED_WITHIN) as patience:
                await self.life.ended.wait()
            if patience.cancelled_caught:
                self.broken(f"the daemon had not ended {STOPPED_WITHIN:g} s after SIGTERM")

    def kill(self) -> None:
        """SIGKILL: the disk stays as it is at this moment, and its Chromium goes with it."""
        if self.life is None or self.life.ended.is_set():
            return
        self.records.deaf = True
        self._state = self._folder / f"state-{self.lives}"
        shutil.copytree(self.life.directory, self._state, ignore=_not_on_disk)
        for process in self.machine.running:
            process.kill()
        self.life.kill()

    @property
    def up(self) -> bool:
        return self.life is not None and self.life.serving

    def ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        token: str = "",
        address: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Call:
        """Send a request; with an `address`, through the owner's proxy."""
        sent = dict(headers or {})
        if address:
            sent["x-forwarded-for"] = address
        call = Call(request(method, path, body, token, sent), trio.current_time())
        if self.life is None:
            call.exchange.end("connection refused")
        else:
            self.life.door.ask(call.exchange, call.gone)
        self._calls = {each for each in self._calls if not each.exchange.ended.is_set()}
        self._calls.add(call)
        return call

    async def answered(
        self,
        who: str,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        token: str = "",
        address: str = "",
        headers: Mapping[str, str] | None = None,
        within: float = ANSWERED,
        may_wait_for_disk: bool = False,
    ) -> Call:
        """Send a request for somebody, and see its answer come in time."""
        call = self.ask(method, path, body, token=token, address=address, headers=headers)
        try:
            with trio.move_on_after(within):
                await call.wait()
        finally:
            call.gone.set()
        is_excused = may_wait_for_disk and self.disk_is_spoilt
        if not call.exchange.ended.is_set() and not is_excused:
            self.broken(f"{method} {path} was not answered within {within:g} s")
        self.log.note(f"{who}: {method} {path} {call.status}", count="requests")
        return call

    def scatter(self) -> None:
        for call in self._calls:
            call.gone.set()

    async def read_tokens(self) -> None:
        """Of all crews; they stay as they are."""
        assert self.life is not None
        for crew, table in CREWS.items():
            for user in ("", *table.get("users", ())):
                token = await self.life.crews.tokens.show(crew, user)
                self.tokens[crew, user] = token.get_secret_value()

    async def command(self, name: str) -> Json | None:
        """What the owner's shell asks for; None when nobody is there."""
        if self.life is None or not self.life.serving:
            return None
        return await self.life.commands[name].run(None)

    # What goes wrong

    def set_clock(self, seconds: float) -> None:
        self.wall.offset += seconds
        self.clock_set = trio.current_time()

    def heal_portal(self) -> None:
        self.portal.faults.clear()
        self.call_no_more()

    def heal_disk(self) -> None:
        self.disk.heal()
        self.slow_threads = 0.0
        self.mend()

    # What there is of it

    @property
    def deserted(self) -> bool:
        """Nobody is at work, and no crew either."""
        load = self.life.crews.executor.load() if self.life is not None else {}
        return not self.anybody and not any(each.running or each.waiting for each in load.values())

    def tasks(self) -> Counter[str]:
        return daemon_tasks()

    def folders(self) -> int:
        """Of browsers and workers."""
        runs = self.life.directory / "runs" if self.life is not None else self._folder / "none"
        found = [*self.machine.profiles.iterdir(), *(runs.iterdir() if runs.exists() else ())]
        return len(found)

    def _check_nothing_left(self) -> None:
        left = (len(self.machine.running), self.folders(), self.workers.count())
        if any(left):
            self.broken(f"{left} browsers, folders and workers are left by a daemon that has ended")
        if tasks := self.tasks():
            self.broken(f"tasks are left by a daemon that has ended: {tasks}")


_not_on_disk = shutil.ignore_patterns("runs")
