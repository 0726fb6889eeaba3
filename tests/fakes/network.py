"""The fake Chromium's network: the sandbox's apps by origin, called by ASGI without a socket.

A real browser visits the same apps. ASGI has no connections, so `Network` resets one by the client
port that the sandbox passes to `sever`. Quart would run plain functions in threads, with which a
mock clock cannot be used; `without_threads` calls them in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

import trio

from smartlinkd.http_server import GuardedQuart
from smartlinkd.nurseries import background
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.portal import portal_app
from smartlinkd.sandbox.shop import shop_app, short_links_app
from smartlinkd.sandbox.state import SandboxState
from tests.fakes.gate import Gate

ORIGINS = Origins("http://affiliate.shop.example", "http://shop.example", "http://s.shop.example")
HOLD = 10_000.0
"""Seconds that a slow answer takes: more than every timeout."""

Json = dict[str, Any]


class NetError(Exception):
    """A failed request; the text is Chromium's name of the error, `net::ERR_…`."""


@dataclass
class Exchange:
    """One request and the part of its answer that has arrived."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    request_body: bytes = b""
    context_id: str = ""  # the browser context; each has its own connections
    status: int = 0
    response_headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    head_arrived: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    fault: str = ""
    under_way: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def mime_type(self) -> str:
        return self.response_headers.get("content-type", "").partition(";")[0].strip()

    async def wait_head(self) -> None:
        """Wait for status and headers. Raises NetError when the request fails before."""
        await self.head_arrived.wait()
        if self.fault and not self.status:
            raise NetError(self.fault)

    async def read(self) -> bytes:
        """Wait for the whole body and return it. Raises NetError when the request fails."""
        await self.ended.wait()
        if self.fault:
            raise NetError(self.fault)
        return self.body

    def end(self, fault: str = "") -> None:
        if not self.ended.is_set():
            self.fault = fault
            self.head_arrived.set()
            self.ended.set()


class Network:
    """The sandbox's apps by origin. A gate in `gates` stops requests whose URL contains its key."""

    def __init__(self) -> None:
        self.portal = SandboxState(ORIGINS, HOLD, sever=self.sever)
        """The state of the three apps."""
        self.gates: dict[str, Gate] = {}
        self.requests: list[str] = []
        self._apps = {
            ORIGINS.portal: without_threads(portal_app(self.portal)),
            ORIGINS.shop: without_threads(shop_app(self.portal)),
            ORIGINS.short: without_threads(short_links_app(self.portal)),
        }
        self._ports = itertools.count(1)
        self._open: dict[int, trio.CancelScope] = {}
        self._used: set[tuple[str, str]] = set()  # contexts and hosts with an open connection

    def hold(self, part: str) -> Gate:
        """Make requests whose URL contains `part` wait at the returned gate."""
        gate = self.gates[part] = Gate()
        return gate

    async def carry(self, exchange: Exchange) -> None:
        """Send the request to its app; `exchange` receives the answer. Return when it is whole."""
        parts = urlsplit(exchange.url)
        for part in [part for part in self.gates if part in exchange.url]:
            await self.gates[part].enter()
        app = self._apps.get(f"{parts.scheme}://{parts.netloc}")
        if app is None:
            exchange.end("net::ERR_NAME_NOT_RESOLVED")
            return
        self.requests.append(f"{exchange.method} {parts.path}")
        with exchange.under_way:
            # Chromium retries a request whose reused connection is reset before an answer, once for
            # each idle connection. This fake has one.
            if await self._was_reset(app, exchange) and (
                not self._served(exchange) or await self._was_reset(app, exchange)
            ):
                exchange.end("net::ERR_CONNECTION_RESET")
                return
        if exchange.under_way.cancelled_caught:
            exchange.end("net::ERR_ABORTED")
        self._used.add((exchange.context_id, parts.netloc))

    def _served(self, exchange: Exchange) -> bool:
        return (
            exchange.context_id,
            urlsplit(exchange.url).netloc,
        ) in self._used and not exchange.status

    async def _was_reset(self, app: GuardedQuart, exchange: Exchange) -> bool:
        port = next(self._ports)
        with trio.CancelScope() as connection:
            self._open[port] = connection
            try:
                await ask_app(app, exchange, port=port)
            finally:
                del self._open[port]
        return connection.cancelled_caught

    def sever(self, _: object, there: tuple[str, int]) -> None:
        """Reset the connection from that client address."""
        self._open[there[1]].cancel()


async def ask_app(
    app: GuardedQuart, exchange: Exchange, *, port: int, gone: trio.Event | None = None
) -> None:
    """Call `app` by ASGI. When `gone` is set, the app sees that its client has disconnected.

    Cancelling this call ends the request without an answer.
    """
    messages, receiving = trio.open_memory_channel[Any](2)
    messages.send_nowait(
        {"type": "http.request", "body": exchange.request_body, "more_body": False}
    )

    async def leave() -> None:
        if gone is not None:
            await gone.wait()
            messages.send_nowait({"type": "http.disconnect"})

    async def send(message: Any) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            exchange.status = message["status"]
            exchange.response_headers = {
                name.decode().lower(): text.decode() for name, text in message["headers"]
            }
            exchange.head_arrived.set()
        elif message["type"] == "http.response.body":
            exchange.body += message.get("body", b"")
            if not message.get("more_body", False):
                exchange.end()

    with messages, receiving:
        async with background(leave):
            await app(_scope(exchange, port), receiving.receive, send)


def _scope(exchange: Exchange, port: int) -> Any:
    parts = urlsplit(exchange.url)
    headers = {"host": parts.netloc, **exchange.headers}
    if exchange.method == "POST":
        headers["content-length"] = str(len(exchange.request_body))
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": parts.scheme,
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), text.encode()) for name, text in headers.items()],
        "client": ("127.0.0.1", port),
        "server": ("127.0.0.1", 80),
        "extensions": {},
    }


def without_threads(app: GuardedQuart) -> GuardedQuart:
    """Return `app`, changed to call plain functions in the trio thread."""

    def in_place(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        @wraps(function)
        async def called(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return called

    app.sync_to_async = in_place  # type: ignore[method-assign, assignment]
    return app
