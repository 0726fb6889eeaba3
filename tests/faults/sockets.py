"""Replacements for the daemon's sockets, and its supervision tree without any."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio

from smartlinkd.admin.control_socket import Commands
from smartlinkd.app import tree
from smartlinkd.config import Settings
from smartlinkd.crews.catalog.catalog import read_catalog
from smartlinkd.http_server import GuardedQuart
from smartlinkd.monitoring.log_buffer import LogBuffer
from smartlinkd.net.client import HttpClient
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.environment import NO_SYSTEMD
from smartlinkd.systemd.manager import ServiceManager
from tests.fakes.network import Exchange, Json, ask_app, without_threads

URL = "http://localhost"


def no_sockets() -> Any:
    """Return listeners without sockets."""
    return SimpleNamespace(main=(), crews={}, urls=(URL,), crew_urls={}, ports=frozenset())


def build_tree(settings: Settings, http: HttpClient) -> Supervisor:
    """Return the daemon's supervisor. `HttpApp` and `ControlSocket` have to be replaced already."""
    return tree.build_supervisor(
        settings,
        http,
        read_catalog(settings),
        no_sockets(),
        ServiceManager(NO_SYSTEMD),
        log_buffer=LogBuffer(),
        read_settings=None,
    )


class AsgiServer:
    """A replacement for `HttpApp`: requests come by ASGI; a stop gives them `grace` seconds."""

    def __init__(self, app: GuardedQuart, _: object, *, grace: float) -> None:
        self._app = without_threads(app)
        self.grace = grace
        self._requests: trio.Nursery | None = None
        self._stop = trio.Event()
        self._connected: dict[int, Exchange] = {}

    @property
    def open(self) -> bool:
        return self._requests is not None and not self._stop.is_set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._stop = self._app.stopping = trio.Event()
        try:
            async with trio.open_nursery() as self._requests:
                task_status.started()
                await self._stop.wait()
                self._requests.cancel_scope.deadline = trio.current_time() + self.grace
        finally:
            self._requests = None

    def stop(self) -> None:
        self._stop.set()

    def reset_connections(self) -> None:
        """Reset all connections, as the kernel does when a process ends."""
        self.stop()
        for exchange in list(self._connected.values()):
            exchange.end("connection reset")

    def ask(self, exchange: Exchange, gone: trio.Event) -> None:
        """Answer the request; refuse it if the server does not listen."""
        with suppress(RuntimeError):  # the nursery may be closing
            if self._requests is not None and self.open:
                self._requests.start_soon(self._answer, exchange, gone)
                return
        exchange.end("connection refused")

    async def _answer(self, exchange: Exchange, gone: trio.Event) -> None:
        self._connected[id(exchange)] = exchange
        try:
            with exchange.under_way:  # cancelling it ends the request without an answer
                await ask_app(self._app, exchange, port=1, gone=gone)
        finally:
            exchange.end("closed")
            del self._connected[id(exchange)]


class Control:
    """A control socket that nobody can connect to."""

    def __init__(self, _: Path, commands: Commands) -> None:
        self.commands = commands

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()


def request(
    method: str, path: str, body: Json | None, token: str, headers: Mapping[str, str]
) -> Exchange:
    """Return a request of a client on this machine."""
    sent = dict(headers)
    if token:
        sent["authorization"] = f"Bearer {token}"
    if body is not None:
        sent["content-type"] = "application/json"
    content = b"" if body is None else json.dumps(body).encode()
    return Exchange(method, f"{URL}{path}", sent, content)


@dataclass(eq=False)
class SentRequest:
    """A request that was sent. Setting `gone` disconnects its client."""

    exchange: Exchange
    began: float
    gone: trio.Event = field(default_factory=trio.Event)
    seconds: float = 0.0

    async def wait(self) -> int:
        """Wait for the end of the answer and return the status; 0 if none came."""
        await self.exchange.ended.wait()
        self.seconds = trio.current_time() - self.began
        return self.status

    async def expect_ok(self, within: float = inf) -> Json:
        """Return the answer's JSON. It must come with 200 within so many seconds."""
        with trio.move_on_after(within):
            await self.wait()
        assert self.status == 200, self
        return self.answer

    @property
    def status(self) -> int:
        return self.exchange.status

    @property
    def answer(self) -> Json:
        found: Json = json.loads(self.exchange.body)
        return found

    def __str__(self) -> str:
        return f"{self.status} {self.exchange.body.decode()!r} after {self.seconds:.3f} s"
