"""Fixtures: a scripted peer of CDP, a web site, a real Chromium, and a `PlayedChromium`."""

from __future__ import annotations

import json
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import h11
import pytest
import trio
from trio.testing import (
    MemoryReceiveStream,
    MemorySendStream,
    memory_stream_pair,
    wait_all_tasks_blocked,
)
from trio_websocket import WebSocketConnection, wrap_server_stream

from smartlinkd.browser import instance, tab_pool
from smartlinkd.browser.cdp import CdpConnection, connect, connect_over
from smartlinkd.browser.chromium import LaunchSettings, launch
from smartlinkd.browser.page import BrowserContext, Page
from smartlinkd.browser.tab_pool import TabPool
from tests.browser.jobs import IDLE, LIMITS, POOL_SIZE, JobRunner
from tests.browser.played import PlayedChromium, PlayedChromiums, PlayedContext
from tests.fakes.receiver import Call, read_call
from tests.hygiene.at_once import check_unchanged, open_resources

Wire = trio.StapledStream[MemorySendStream, MemoryReceiveStream]


class Peer:
    """The other end of a `CdpConnection`: takes commands, says anything."""

    def __init__(self) -> None:
        self.websocket: WebSocketConnection
        self.stream: trio.abc.Stream

    async def accept(self, stream: trio.abc.Stream, nursery: trio.Nursery) -> None:
        self.stream = stream
        request = await wrap_server_stream(nursery, stream)
        self.websocket = await request.accept()

    async def take(self) -> dict[str, Any]:
        """The next command."""
        taken: dict[str, Any] = json.loads(await self.websocket.get_message())
        return taken

    async def say(self, message: object) -> None:
        """Send a message; a text goes as it is."""
        text = message if isinstance(message, str | bytes) else json.dumps(message)
        await self.websocket.send_message(text)

    async def report(self, method: str, **params: object) -> None:
        """Send an event of the session S."""
        await self.say({"sessionId": "S", "method": method, "params": params})
        await wait_all_tasks_blocked()

    async def answer(self, result: object) -> dict[str, Any]:
        """Take the next command and answer it."""
        command = await self.take()
        await self.say({"id": command["id"], "result": result})
        return command


@pytest.fixture
async def peer(nursery: trio.Nursery) -> Peer:
    return Peer()


@pytest.fixture
async def wire(peer: Peer, nursery: trio.Nursery) -> Wire:
    """Our end of a stream to `peer`, which accepts a websocket on it."""
    ours, theirs = memory_stream_pair()
    nursery.start_soon(peer.accept, theirs, nursery)
    return ours


@pytest.fixture
async def conversation(wire: Wire, nursery: trio.Nursery) -> AsyncIterator[CdpConnection]:
    """A connection to `peer`, without a socket."""
    async with connect_over(wire, "browser.test", "/devtools") as connection:
        yield connection
    nursery.cancel_scope.cancel()


@dataclass
class Answer:
    """The answer of a page: after `wait`, if there is one."""

    body: str | bytes = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "text/html"})
    wait: trio.Event | None = None


class Site:
    """A web site on loopback. Every page of it that is not in `pages` is an empty one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: dict[str, Answer] = {}
        self.requests: list[Call] = []

    def url(self, path: str = "/", *, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def put(self, path: str, body: str | bytes = "", **more: Any) -> str:
        """Make a page. Returns its URL."""
        self.pages[path] = Answer(body, **more)
        return self.url(path)

    async def serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):  # the browser went away
            async with stream:
                request = await read_call(h11.Connection(h11.SERVER), stream)
                if request is None:
                    return
                self.requests.append(request)
                path = request.path.partition("?")[0]
                answer = self.pages.get(path, Answer("<title>t</title>"))
                if answer.wait is not None:
                    await answer.wait.wait()
                body = answer.body.encode() if isinstance(answer.body, str) else answer.body
                head = {"Content-Length": str(len(body)), "Connection": "close", **answer.headers}
                lines = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {head[name]}" for name in head)]
                await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)


@pytest.fixture
async def closed_port() -> int:
    """A port of 127.0.0.1 where nobody listens."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listener.socket.getsockname()[1]
    await listener.aclose()
    return port


@pytest.fixture
async def site(nursery: trio.Nursery) -> AsyncIterator[Site]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    site = Site(listeners[0].socket.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, site.serve, listeners)
    yield site
    nursery.cancel_scope.cancel()


@pytest.fixture
def profiles(caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    """The folder for profiles. After the test nothing of any browser with one in it is left.

    A reaper waits for the end of its tree, or complains.
    """
    folder = Path(tempfile.mkdtemp(prefix="test-"))
    folder.chmod(0o755)
    before = open_resources()
    yield folder
    left = [entry.name for entry in os.scandir(folder)]
    shutil.rmtree(folder)
    assert left == []
    check_unchanged(before)
    told = [record.getMessage() for record in caplog.get_records("call")]  # while the test ran
    assert not [each for each in told if "its reaper" in each]


@pytest.fixture
def settings(profiles: Path) -> LaunchSettings:
    return LaunchSettings(profiles=profiles)


@pytest.fixture(scope="session")
def shared_endpoint() -> Iterator[str]:
    """One Chromium for all tests that leave it up; each has its own connection and contexts.

    It lives on a trio of its own in a thread, since a test's trio ends with the test.
    """
    told: queue.Queue[tuple[str, Callable[[], None]]] = queue.Queue()

    async def keep() -> None:
        async with launch(LaunchSettings()) as chromium:
            token, over = trio.lowlevel.current_trio_token(), trio.Event()
            told.put((chromium.endpoint, lambda: token.run_sync_soon(over.set)))
            await over.wait()

    thread = threading.Thread(target=trio.run, args=(keep,))
    thread.start()
    endpoint, end = told.get(timeout=30)
    yield endpoint
    end()
    thread.join()


@pytest.fixture
async def connection(shared_endpoint: str) -> AsyncIterator[CdpConnection]:
    async with connect(shared_endpoint) as connection:
        yield connection


@pytest.fixture
async def page(connection: CdpConnection) -> Page:
    """A tab in a context of its own."""
    return await (await BrowserContext.create(connection, ())).new_page()


@pytest.fixture
def chromiums(monkeypatch: pytest.MonkeyPatch) -> PlayedChromiums:
    """The browsers that instances launch from now on: all are played."""
    played = PlayedChromiums()
    monkeypatch.setattr(instance, "launch", played.launch)
    monkeypatch.setattr(instance, "connect", played.connect)
    monkeypatch.setattr(instance, "product", played.product)
    monkeypatch.setattr(instance, "is_sandboxed", played.is_sandboxed)
    monkeypatch.setattr(instance, "BrowserContext", PlayedContext)
    monkeypatch.setattr(tab_pool, "BrowserContext", PlayedContext)
    return played


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> PlayedChromium:
    """A browser that is played, for contexts on it."""
    monkeypatch.setattr(tab_pool, "BrowserContext", PlayedContext)
    return PlayedChromium()


@pytest.fixture
async def pool(played: PlayedChromium, nursery: trio.Nursery) -> TabPool:
    return TabPool(cast("Any", played), nursery, size=POOL_SIZE, idle_s=IDLE, limits=LIMITS)


@pytest.fixture
async def runner(pool: TabPool, nursery: trio.Nursery) -> JobRunner:
    return JobRunner(pool, nursery)
