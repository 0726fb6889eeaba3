"""The daemon on a stage: its own parts under its own supervisor, asked through its own facade.

What is not its own: the machine below Chromium (`tests/fakes`), and the HTTP server in front, whose
place a `Door` takes that calls the facade by ASGI. So there is no socket, no thread and no process,
and an hour passes in a millisecond.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from pydantic import SecretBytes
from trio.testing import MockClock

from daemon.api.access import Neighbourhood
from daemon.api.app import build_app
from daemon.api.services import CrewServices, Services
from daemon.auth.actor import Auth
from daemon.auth.state import Saved, save
from daemon.auth.tokens import Tokens
from daemon.browser.actor import Browser
from daemon.browser.chromium import LaunchSettings
from daemon.browser.generation import GenerationSettings
from daemon.config import Settings, build
from daemon.crews.catalog import read_catalog
from daemon.metrics import Metrics
from daemon.operator import Operator
from daemon.parts import make_crews, make_desk
from daemon.sandbox.answers import product_link
from daemon.sandbox.products import product_of
from daemon.sandbox.session import cookie_header
from daemon.sandbox.state import State
from daemon.serving import GuardedQuart
from daemon.supervision.policy import Backoff
from daemon.supervision.supervisor import ChildSpec, Supervisor
from daemon.vault.actor import Vault
from tests.fakes.machine import Machine
from tests.fakes.network import (
    ORIGINS,
    Exchange,
    Json,
    Network,
    ask_app,
    sandbox_network,
    without_threads,
)

GRACE = 10.0
LAST_WRITES = 5.0
LOOK_EVERY = 0.02
BIG = 1 << 30
RECYCLE_MEMORY = 1 << 29
# Of no use to anybody: a password hash that has the form of one.
HASH = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$" + "A" * 43
SIGNING = "ab" * 32
EPOCH = "0123456789abcdef"


class Door:
    """What the HTTP server is to the facade: a request is a task, and a stop has a grace."""

    def __init__(self, app: GuardedQuart) -> None:
        self._app = app
        self._requests: trio.Nursery | None = None
        self._stop = trio.Event()

    @property
    def open(self) -> bool:
        return self._requests is not None and not self._stop.is_set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._stop = trio.Event()
        try:
            async with trio.open_nursery() as self._requests:
                task_status.started()
                await self._stop.wait()
                self._requests.cancel_scope.deadline = trio.current_time() + GRACE
        finally:
            self._requests = None

    def stop(self) -> None:
        self._stop.set()

    def ask(self, exchange: Exchange, gone: trio.Event) -> None:
        assert self._requests is not None
        self._requests.start_soon(self._answer, exchange, gone)

    async def _answer(self, exchange: Exchange, gone: trio.Event) -> None:
        try:
            await ask_app(self._app, exchange, port=1, gone=gone)
        finally:
            exchange.end("closed")


@dataclass
class Asked:
    """A request under way."""

    exchange: Exchange
    began: float
    gone: trio.Event = field(default_factory=trio.Event)
    seconds: float = 0.0

    async def wait(self) -> None:
        """Until it is answered, or cut off."""
        await self.exchange.ended.wait()
        self.seconds = trio.current_time() - self.began

    @property
    def status(self) -> int:
        return self.exchange.status

    @property
    def answer(self) -> Json:
        found: Json = json.loads(self.exchange.body)
        return found

    def __str__(self) -> str:
        return f"{self.status} {self.exchange.body.decode()!r} after {self.seconds:.3f} s"


class Wall:
    """The machine's clock, in Unix seconds. It goes with trio's, and can be set."""

    def __init__(self) -> None:
        self.offset = 1_800_000_000.0

    def now(self) -> float:
        return self.offset + trio.current_time()


class Stage:
    """A daemon that can be started, and everything around it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, clock: MockClock) -> None:
        self.network: Network
        self.portal: State
        self.network, self.portal = sandbox_network(patch)
        self.machine = Machine(folder, self.network)
        self.machine.install(patch)
        self.wall = Wall()
        self.readiness: list[tuple[float, bool]] = []
        self.ended = trio.Event()
        self._clock = clock
        self._items = iter(range(500_000_000, 600_000_000))
        self._settings = build(_tables(folder))
        (folder / "state").mkdir(mode=0o700)
        save(folder / "state", Saved(version=1, epoch=EPOCH, spared=None, second_factor=None))
        self.browser = Browser(_generation(self.machine), queue=8, backoff=Backoff(jitter=0.0))
        self._supervisor, self.door = _plant(self._settings, self.browser, self.wall)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """The daemon's life. Its start needs a thread, so the clock stands still for it."""

        async def supervise(task_status: trio.TaskStatus[None]) -> None:
            await self._supervisor.run(task_status)
            nursery.cancel_scope.cancel()

        self.ended = trio.Event()
        self._clock.autojump_threshold = inf
        async with trio.open_nursery() as nursery:
            await nursery.start(supervise)
            self._clock.autojump_threshold = 0
            nursery.start_soon(self._watch)
            task_status.started()
        self.ended.set()

    def stop(self) -> None:
        """What SIGTERM does."""
        self._supervisor.stop()

    @property
    def ready(self) -> bool:
        return self.browser.ready

    async def until_ready(self, within: float) -> None:
        with trio.fail_after(within):
            while not self.ready:  # noqa: ASYNC110 - readiness is a look, as monitors take it
                await trio.sleep(LOOK_EVERY)

    def account(self) -> str:
        """One that nobody has used."""
        return str(next(self._items))

    def ask(self, account: str, *, items: int = 1, sub_id: str = "") -> Asked:
        """Convert links of items that nobody has asked for."""
        links = [product_link(product_of(next(self._items)), ORIGINS.shop) for _ in range(items)]
        body = {"links": links, "subIds": [sub_id], "cookie": cookie_header(account)}
        headers = {
            "authorization": f"Bearer {self._token()}",
            "content-type": "application/json",
        }
        sent = json.dumps(body).encode()
        exchange = Exchange("POST", "http://localhost/api/convert", headers, sent)
        asked = Asked(exchange, trio.current_time())
        if self.door.open:
            self.door.ask(exchange, asked.gone)
        else:
            exchange.end("connection refused")
        return asked

    # What there is of it

    def tasks(self) -> Counter[str]:
        """The daemon's own tasks, by name."""
        return Counter(_tasks(trio.lowlevel.current_root_task()))

    def processes(self) -> int:
        return len(self.machine.running)

    def folders(self) -> int:
        return len(list(self.machine.profiles.iterdir()))

    @staticmethod
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - their number is enough

    async def _watch(self) -> None:
        """Note each change of readiness."""
        while True:
            if not self.readiness or self.readiness[-1][1] != self.ready:
                self.readiness.append((trio.current_time(), self.ready))
            await trio.sleep(LOOK_EVERY)

    def _token(self) -> str:
        tokens = Tokens(SecretBytes(bytes.fromhex(SIGNING)), self._settings.auth.password_hash)
        return tokens.issue("session", jti="0" * 32, epoch=EPOCH, now=self.wall.now())


def _tasks(task: trio.lowlevel.Task | None) -> list[str]:
    if task is None:
        return []
    found = [task.name] if task.name.startswith("daemon.") else []
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            found += _tasks(child)
    return found


def _tables(folder: Path) -> dict[str, Any]:
    return {
        "server": {"bind": "127.0.0.1:0"},
        "state": {"directory": str(folder / "state")},
        "auth": {"password_hash": HASH, "signing_secret": SIGNING},
        "marketplace": {
            "portal_url": ORIGINS.portal,
            "shop_url": ORIGINS.shop,
            "short_urls": [ORIGINS.short],
        },
    }


def _generation(machine: Machine) -> GenerationSettings:
    return GenerationSettings(
        launch=LaunchSettings(executable=machine.executable, profiles=machine.profiles),
        contexts=8,
        idle=600.0,
        recycle_after=86_400.0,
        recycle_memory=RECYCLE_MEMORY,
    )


def _plant(settings: Settings, browser: Browser, wall: Wall) -> tuple[Supervisor, Door]:
    """As the tree does, without crews, sockets and the control socket."""
    directory = settings.state.directory
    auth = Auth(
        directory,
        password_hash=settings.auth.password_hash,
        signing_secret=settings.auth.signing_secret,
        wall_clock=wall.now,
    )
    vault = Vault()
    client = httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(404)))
    desk = make_desk(settings, client, browser)
    catalog = read_catalog(settings)
    crews = make_crews(settings, catalog, SecretBytes(bytes(32)), desk, vault)
    operator = Operator(
        auth=auth,
        vault=vault,
        desk=desk,
        browser=browser,
        parts=list,
        catalog=catalog,
        tokens=crews.tokens,
        executor=crews.executor,
        url="http://localhost",
        crew_urls={},
    )
    services = Services(
        auth=auth,
        vault=vault,
        desk=desk,
        browser=browser,
        operator=operator,
        metrics=Metrics(browser, crews.executor, list),
        crews=CrewServices(catalog, crews.executor, crews.tokens, (), {}),
        neighbourhood=Neighbourhood((), (), frozenset()),
        sync_key=settings.cookie.sync_key,
        extension_origins=frozenset(),
        max_body=settings.server.max_body,
    )
    door = Door(without_threads(build_app(services)))
    supervisor = Supervisor(
        "smartlinkd",
        [
            ChildSpec("auth", auth.run, mailbox=auth.mailbox),
            ChildSpec("vault", vault.run, mailbox=vault.mailbox),
            ChildSpec("browser", browser.run, mailbox=browser.mailbox),
            ChildSpec("conversion", desk.run, mailbox=desk.mailbox),
            ChildSpec("http", door.run, stop=door.stop, grace=GRACE + LAST_WRITES),
        ],
    )
    return supervisor, door
