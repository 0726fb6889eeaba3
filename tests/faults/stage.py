"""The daemon in one process, built by its own tree and asked through its own HTTP apps.

Fakes (`tests/fakes`) replace Chromium's and the workers' machines, the internet, the disk and
threads; `AsgiServer` replaces the HTTP server. Nothing leaves this process, so an hour on the
required mock clock (`autojump_clock`) takes milliseconds.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.app import components, http_apps, tree
from smartlinkd.app.components import Crews
from smartlinkd.auth import passwords
from smartlinkd.auth.actor import Auth
from smartlinkd.auth.files import SavedState, save
from smartlinkd.auth.tokens import Tokens
from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.config import build
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.webhooks.dispatcher import WebhookDispatcher
from smartlinkd.errors import Unavailable
from smartlinkd.net.client import HttpClient
from smartlinkd.sandbox.products import product_link, product_of
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.store.actor import Store
from smartlinkd.supervision.child import ChildSnapshot
from smartlinkd.supervision.policy import Backoff
from smartlinkd.supervision.supervisor import Escalated, Supervisor
from smartlinkd.vault.actor import Vault
from tests.fakes.disk import Disk
from tests.fakes.internet import NETWORK, Internet
from tests.fakes.machine import Machine
from tests.fakes.network import ORIGINS, Json, Network
from tests.fakes.threads import threads_in_place
from tests.fakes.workers import Workers
from tests.faults.sockets import AsgiServer, Control, SentRequest, build_tree, request
from tests.hygiene.tasks import daemon_tasks

POLL_INTERVAL = 0.02  # seconds
GONE = 1.0
"""Seconds until the reapers have ended the processes of a daemon that is gone."""
BIG = 1 << 30
RECYCLE_MEMORY = 1 << 29
# A password hash in form only: no password matches it.
HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$" + "A" * 43
SIGNING = "ab" * 32
MASTER = "cd" * 32
EPOCH = "0123456789abcdef"
JOURNAL = "journal.sqlite3"
matches = cache(passwords.matches)
"""Cached, as hashing takes most of the time of a start."""

Table = Mapping[str, Any]


class WallClock:
    """The wall clock in Unix seconds. It runs with trio's clock; `offset` can be set."""

    def __init__(self) -> None:
        self.offset = 1_800_000_000.0

    def now(self) -> float:
        return self.offset + trio.current_time()

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now(), UTC)


BROWSER_LIMITS = BrowserLimits()


async def wait_until(condition: Callable[[], object], within: float) -> bool:
    """Poll until the condition is true. Return False after `within` seconds."""
    with trio.move_on_after(within):
        while not condition():  # noqa: ASYNC110 - no event is set
            await trio.sleep(POLL_INTERVAL)
        return True
    return False


class Stage:
    """A daemon that can be started repeatedly, with everything around it.

    Each `run()` is a new process: all parts are new, and read the state directory that the run
    before has left.
    """

    http_server: AsgiServer
    browser: Browser
    crews: Crews

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        *,
        crews: Sequence[Table] = (),
        poll_interval: float = POLL_INTERVAL,
        browser_limits: BrowserLimits = BROWSER_LIMITS,
    ) -> None:
        """`crews` are `[[crews]]` tables.

        A crew without a command has workers that run the input `script`. Readiness is noted every
        `poll_interval` seconds.
        """
        self.network = Network()
        self.portal = self.network.portal
        self.machine = Machine(folder, self.network)
        self.machine.install(patch)
        self.workers = Workers(folder)
        self.workers.install(patch)
        self.internet = Internet()
        self.internet.install(patch)
        threads_in_place(patch)
        self.disk = Disk()
        self.disk.install(patch)
        self.wall = WallClock()
        self.directory = folder / "state"
        self.readiness: list[tuple[float, bool]] = []
        self.tokens: dict[str, str] = {}
        """The organization tokens by crew."""
        self.ended = trio.Event()
        self.escalated: Escalated | None = None
        """The escalation that ended the daemon; None if there was none."""
        self._poll_interval = poll_interval
        self._browser_limits = browser_limits
        self._items = iter(range(500_000_000, 600_000_000))
        usual = {"runner": "command", "command": [str(self.workers.program)]}
        self._settings = build(tables(self.directory, [{**usual, **each} for each in crews]))
        self._life = trio.CancelScope()
        self._files_at_kill: dict[str, bytes] | None = None
        self.directory.mkdir(mode=0o700)
        save(self.directory, SavedState(version=1, epoch=EPOCH, spared=None, second_factor=None))
        self._patch_tree(patch)

    # Process

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the daemon from its start to its end, then wait until its processes have ended."""
        self.ended, self.escalated = trio.Event(), None
        self._life, self._files_at_kill = trio.CancelScope(), None
        self._build()
        async with trio.open_nursery() as world:
            self.workers.nursery = self.internet.nursery = world
            try:
                with self._life:
                    await self._live(task_status)
            finally:
                self._restore_files()
            await wait_until(lambda: not self.workers.count(), GONE)
            world.cancel_scope.cancel()
        self.ended.set()

    async def _live(self, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._supervise, nursery.cancel_scope)
            with suppress(Unavailable):  # it was stopped before it was up, or failed to start
                await self._read_tokens()
            nursery.start_soon(self._note_readiness)
            task_status.started()

    def stop(self) -> None:
        """Do what SIGTERM does."""
        self._supervisor.stop()

    def stop_at_once(self) -> None:
        """Do what a second SIGTERM does."""
        self._life.cancel()

    def kill(self) -> None:
        """End the daemon as SIGKILL does: the next one finds the files as they are now.

        The tasks are cancelled; what they write after that is undone.
        """
        self._files_at_kill = {
            each.name: each.read_bytes() for each in self.directory.iterdir() if each.is_file()
        }
        self._life.cancel()
        self.disk.heal()  # open the gates: nothing may wait for them

    @property
    def ready(self) -> bool:
        return self.browser.is_ready

    async def until_ready(self, within: float) -> None:
        assert await wait_until(lambda: self.ready, within)

    async def wait_gone(self, within: float) -> None:
        """Wait for the daemon's end and check that nothing is left of it."""
        with trio.fail_after(within):
            await self.ended.wait()
        assert not self.tasks(), self.tasks()
        left = self.processes(), self.folders()
        assert left == (0, 0), left

    # Requests

    def account(self) -> str:
        """Return an unused account."""
        return str(next(self._items))

    def link(self) -> str:
        """Return a link to an unused item."""
        return product_link(product_of(next(self._items)), ORIGINS.shop)

    def ask(self, account: str, *, items: int = 1, sub_id: str = "") -> SentRequest:
        """Convert links to so many unused items."""
        links = [self.link() for _ in range(items)]
        body = {"links": links, "subIds": [sub_id], "cookie": cookie_header(account)}
        return self.request("POST", "/api/convert", body, token=self._session())

    def request(
        self, method: str, path: str, body: Json | None = None, *, token: str = "", **headers: str
    ) -> SentRequest:
        """Send a request. `Idempotency_Key="x"` is the header Idempotency-Key."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange = request(method, path, body, token, given)
        asked = SentRequest(exchange, trio.current_time())
        self.http_server.ask(exchange, asked.gone)
        return asked

    # Resources

    def tasks(self) -> Counter[str]:
        return daemon_tasks()

    def processes(self) -> int:
        return len(self.machine.running) + self.workers.count()

    def folders(self) -> int:
        """Return the number of folders of browsers and workers."""
        runs = self.directory / "runs"
        found = [*self.machine.profiles.iterdir(), *(runs.iterdir() if runs.exists() else ())]
        return len(found)

    @staticmethod
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - their number is enough

    def parts(self) -> dict[str, ChildSnapshot]:
        return {part.name: part for each in self._supervisors for part in each.snapshot()}

    # Setup

    def _patch_tree(self, patch: pytest.MonkeyPatch) -> None:
        """Replace parts that the tree builds: with fakes, with clocks, or to keep a reference."""
        make_crews, wall = components.make_crews, self.wall.moment

        def keep_supervisor(*args: Any, **more: Any) -> Supervisor:
            self._supervisors.append(Supervisor(*args, **more))
            return self._supervisors[-1]

        def keep_server(*args: Any, **more: Any) -> AsgiServer:
            self.http_server = AsgiServer(*args, **more)
            return self.http_server

        def keep_crews(*args: Any) -> Crews:
            self.crews = make_crews(*args)
            return self.crews

        patch.setattr(passwords, "matches", matches)
        patch.setattr(tree, "Supervisor", keep_supervisor)
        patch.setattr(http_apps, "HttpApp", keep_server)
        patch.setattr(tree, "make_crews", keep_crews)
        patch.setattr(tree, "make_browser", lambda *_, **__: self.browser)
        patch.setattr(tree, "Vault", partial(Vault, wall=wall))
        patch.setattr(tree, "ControlSocket", Control)
        patch.setattr(tree, "Auth", partial(Auth, wall_clock=self.wall.now))
        patch.setattr(components, "Store", partial(Store, wall=wall))
        patch.setattr(components, "Executor", partial(Executor, wall=wall))
        patch.setattr(components, "WebhookDispatcher", partial(WebhookDispatcher, wall=wall))

    def _build(self) -> None:
        self._supervisors: list[Supervisor] = []
        self.browser = Browser(
            _generation(self.machine, self._browser_limits),
            queue=8,
            backoff=Backoff(jitter=0.0),
            on_down=lambda _why: None,
        )
        http = HttpClient(httpx.MockTransport(lambda _: httpx.Response(404)))
        self._supervisor = build_tree(self._settings, http)

    async def _supervise(
        self, around: trio.CancelScope, task_status: trio.TaskStatus[None]
    ) -> None:
        try:
            await self._supervisor.run(task_status)
        except Escalated as error:
            self.escalated = error
            with suppress(RuntimeError):  # it has started
                task_status.started()
        around.cancel()

    async def _read_tokens(self) -> None:
        tokens = self.crews.tokens
        for name in self.crews.executor.catalog.names():
            self.tokens[name] = (await tokens.show(name)).get_secret_value()

    def _restore_files(self) -> None:
        """Undo all writes since `kill()`."""
        if self._files_at_kill is None:
            return
        for each in self.directory.iterdir():
            if each.is_file():
                each.unlink()
        for name, content in self._files_at_kill.items():
            (self.directory / name).write_bytes(content)
            (self.directory / name).chmod(0o600)

    async def _note_readiness(self) -> None:
        """Note each change of readiness."""
        while True:
            if not self.readiness or self.readiness[-1][1] != self.ready:
                self.readiness.append((trio.current_time(), self.ready))
            await trio.sleep(self._poll_interval)

    def _session(self) -> str:
        key = SecretBytes(bytes.fromhex(SIGNING))
        tokens = Tokens(key, self._settings.auth.password_hash)
        return tokens.issue("session", jti="0" * 32, epoch=EPOCH, now=self.wall.now())


def tables(directory: Path, crews: Sequence[Table]) -> dict[str, Any]:
    return {
        "server": {"bind": "127.0.0.1:0"},
        "state": {"directory": str(directory)},
        "auth": {"password_hash": HASH, "signing_secret": SIGNING},
        "crew_tokens": {"master_secret": MASTER},
        "webhooks": {"allow": [NETWORK]},
        "marketplace": {
            "portal_url": ORIGINS.portal,
            "shop_url": ORIGINS.shop,
            "short_urls": [ORIGINS.short],
        },
        "crews": crews,
    }


def _generation(machine: Machine, limits: BrowserLimits) -> InstanceSettings:
    return InstanceSettings(
        launch=LaunchSettings(executable=machine.executable, profiles=machine.profiles),
        contexts=8,
        idle_s=600.0,
        recycle_after_s=86_400.0,
        recycle_bytes=RECYCLE_MEMORY,
        limits=limits,
    )
