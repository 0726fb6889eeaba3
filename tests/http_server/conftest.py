"""A real server on a loopback port, an app to put behind it, and clients that speak raw bytes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pytest
import trio
from quart import request
from quart.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from smartlinkd.http_server import GuardedQuart, HttpLimits, ServedApp, bind, serve

PATIENCE = 8.0  # seconds; past it a client in these tests calls the server hung
SOON = 3.0  # seconds; far below the limits that are not to be waited for, even on a busy machine
LARGE = 32 * 1024 * 1024
GET = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n"
LAST_GET = b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
WAIT = GET.replace(b"small", b"wait")


@dataclass(frozen=True)
class Answer:
    """A parsed HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def parse(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin1").split("\r\n")
    fields = (line.split(": ", 1) for line in lines[1:])
    return Answer(int(lines[0].split(" ")[1]), {n.lower(): v for n, v in fields}, body)


@dataclass
class Client:
    """Opens connections to one port."""

    port: int

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def send_and_read(self, data: bytes) -> bytes:
        """Everything the server says until its end of file, or its reset."""
        with trio.fail_after(PATIENCE):
            async with await self.connect() as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(data)
                return await read_all(stream)

    async def send_and_close(self, data: bytes) -> None:
        async with await self.connect() as stream:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(data)

    async def ask(self, data: bytes) -> Answer:
        """Send a request, and return the answer. It is sent before the server can know of the
        connection, so no time limit is met, however busy the machine is."""
        connected = socket.create_connection(("127.0.0.1", self.port))
        connected.sendall(data)
        with trio.fail_after(PATIENCE):
            async with trio.SocketStream(trio.socket.from_stdlib_socket(connected)) as stream:
                return parse(await read_all(stream))

    async def is_answered(self) -> bool:
        """Return True if an ordinary client gets its answer."""
        answer = await self.ask(LAST_GET)
        return answer.status == 200 and answer.body == b"ok"


def client_of(listening: socket.socket) -> Client:
    """Return a client for a listening socket that something else serves."""
    return Client(listening.getsockname()[1])


async def read_all(stream: trio.SocketStream) -> bytes:
    received = b""
    with suppress(trio.BrokenResourceError):
        while data := await stream.receive_some(65536):
            received += data
    return received


async def read_answer(stream: trio.SocketStream) -> Answer:
    """Read an answer with a Content-Length from a connection that stays open."""
    received = b""
    with trio.fail_after(PATIENCE):
        while True:
            if b"\r\n\r\n" in received:
                answer = parse(received)
                if len(answer.body) >= int(answer.headers["content-length"]):
                    return answer
            data = await stream.receive_some(65536)
            assert data, f"the server closed the connection after {received!r}"
            received += data


@dataclass
class Seen:
    """Events of the app's handlers."""

    started: trio.Event = field(default_factory=trio.Event)
    cancelled: trio.Event = field(default_factory=trio.Event)
    finish: trio.Event = field(default_factory=trio.Event)


@dataclass
class Running(Client):
    stop: trio.Event
    ended: trio.Event


class Serving(Protocol):
    """Serves the app with these limits, and stops it at the end of the block."""

    def __call__(
        self, *, grace: float = ..., **limits: float
    ) -> AbstractAsyncContextManager[Running]: ...


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def app(seen: Seen) -> GuardedQuart:
    made = GuardedQuart()

    @made.get("/small")
    async def small() -> str:
        return "ok"

    @made.get("/large")
    async def large() -> bytes:
        seen.started.set()
        return b"x" * LARGE

    @made.post("/echo")
    async def echo() -> str:
        return str(len(await request.get_data()))

    @made.post("/unread")
    async def unread() -> str:
        return "unread"

    @made.route("/wait", methods=["GET", "POST"])
    async def wait() -> str:
        seen.started.set()
        try:
            await seen.finish.wait()
        except trio.Cancelled:
            seen.cancelled.set()
            raise
        return "waited"

    @made.get("/stream")
    async def stream() -> AsyncIterator[bytes]:
        await seen.finish.wait()
        yield b"an event"

    @made.get("/broken")
    async def broken() -> str:
        raise ZeroDivisionError

    @made.errorhandler(HTTPException)
    async def failed(error: HTTPException) -> ResponseReturnValue:
        return {"ok": False, "error": error.name}, error.code or 500

    return made


@asynccontextmanager
async def running(
    app: GuardedQuart, *, grace: float = 60.0, **limits: float
) -> AsyncIterator[Running]:
    """`serve`, stopped in the end; its exception, if any, leaves the block.

    The grace is far above the patience, so that a connection that hangs is seen.
    """
    sockets = bind("127.0.0.1", 0)
    at = Running(sockets[0].getsockname()[1], trio.Event(), trio.Event())

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        await serve(
            ServedApp(app),
            sockets,
            grace=grace,
            stop=at.stop,
            limits=HttpLimits(**limits),  # type: ignore[arg-type]  # its one int is given as one
            task_status=task_status,
        )
        at.ended.set()

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(run)
            yield at
            at.stop.set()
            with trio.fail_after(PATIENCE):
                await at.ended.wait()
    finally:
        for listening in sockets:
            listening.close()


@pytest.fixture
def serving(app: GuardedQuart) -> Serving:
    return partial(running, app)
