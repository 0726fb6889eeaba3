"""Receivers on loopback that misbehave as told, and a journal on disk with calls for them."""

from __future__ import annotations

import socket
import sqlite3
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import h11
import pytest
import trio
from pydantic import SecretBytes

from daemon.crews.webhooks.actor import Timings, Webhooks
from daemon.journal import schema
from daemon.journal.actor import Journal
from daemon.journal.model import Change, Entry, NewDelivery, NewExecution, Retention, WebhookTarget

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

Behaviour = Callable[[trio.SocketStream], Awaitable[None]]


@dataclass(frozen=True)
class Received:
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(status: int, **headers: str) -> Behaviour:
    """An ordinary answer; `Retry_After="3"` is the header Retry-After."""
    lines = [f"HTTP/1.1 {status} Whatever", "Content-Length: 2"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    data = "\r\n".join(lines).encode() + b"\r\n\r\nok"

    async def say(stream: trio.SocketStream) -> None:
        await stream.send_all(data)

    return say


async def hang(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def never_end(stream: trio.SocketStream) -> None:
    """200, and a body without an end."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send_all(b"400\r\n" + b"x" * 1024 + b"\r\n")


async def never_begin(stream: trio.SocketStream) -> None:
    """A head without an end."""
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send_all(b"X-More: " + b"x" * 1024 + b"\r\n")


@dataclass
class Receiver:
    """A server: `behaviours` are what it does to the next requests, then it answers 200."""

    host: str
    port: int = 0
    behaviours: deque[Behaviour] = field(default_factory=deque)
    received: list[Received] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    usual: Behaviour = field(default_factory=lambda: answer(200))
    _news: trio.Event = field(default_factory=trio.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://{self.host}:{self.port}{path}"

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.received]

    async def until(self, count: int) -> list[Received]:
        """Wait until it has got so many requests."""
        while len(self.received) < count:
            await self._news.wait()
        return self.received

    async def serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with stream:
                connection = h11.Connection(h11.SERVER)
                while request := await self._request(stream, connection):
                    self.received.append(request)
                    behaviour = self.behaviours.popleft() if self.behaviours else self.usual
                    self.at_once += 1
                    self.most_at_once = max(self.at_once, self.most_at_once)
                    self._news.set()
                    self._news = trio.Event()
                    try:
                        await behaviour(stream)
                    finally:
                        self.at_once -= 1
                    connection = h11.Connection(h11.SERVER)

    async def _request(
        self, stream: trio.SocketStream, connection: h11.Connection
    ) -> Received | None:
        head: h11.Request | None = None
        body = b""
        while True:
            match connection.next_event():
                case h11.NEED_DATA:
                    data = await stream.receive_some(65536)
                    if not data:
                        return None
                    connection.receive_data(data)
                case h11.Request() as head:
                    pass
                case h11.Data(data=data):
                    body += data
                case h11.EndOfMessage():
                    break
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        return Received(head.method.decode(), head.target.decode(), headers, body)


@pytest.fixture
def behave() -> SimpleNamespace:
    """The behaviours by name."""
    return SimpleNamespace(
        answer=answer, hang=hang, reset=reset, never_end=never_end, never_begin=never_begin
    )


@pytest.fixture
def open_receiver(nursery: trio.Nursery) -> Callable[..., Awaitable[Receiver]]:
    async def begin(host: str = "127.0.0.1", port: int = 0) -> Receiver:
        receiver = Receiver(host)

        async def serve(task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
            await trio.serve_tcp(receiver.serve, port, host=host, task_status=task_status)

        listeners: list[trio.SocketListener] = await nursery.start(serve)
        receiver.port = listeners[0].socket.getsockname()[1]
        return receiver

    return begin


@pytest.fixture
async def receiver(open_receiver: Callable[..., Awaitable[Receiver]]) -> Receiver:
    return await open_receiver()


@dataclass
class Desk:
    """A journal on disk, and the webhooks part over it."""

    path: Path
    journal: Journal
    nursery: trio.Nursery
    _began: float = field(default_factory=trio.current_time)
    timings: Timings = field(init=False)
    _nudge: Callable[[], None] = field(init=False)

    def wall(self) -> datetime:
        return NOW + timedelta(seconds=trio.current_time() - self._began)

    async def execution(self, *targets: WebhookTarget) -> str:
        new = NewExecution(
            id=str(uuid4()),
            crew="deal-post",
            owner="",
            created_at=self.wall(),
            inputs={},
            webhooks=targets,
        )
        return (await self.journal.create(new, idempotency=None)).id

    async def queue(self, execution_id: str, target: WebhookTarget, *bodies: bytes) -> None:
        calls = [NewDelivery(target, body, self.wall()) for body in bodies]
        await self.journal.record(execution_id, Entry(Change(), deliveries=calls))

    async def call(self, url: str, *bodies: bytes, **target: Any) -> str:
        """An execution of its own, with calls to one target."""
        wanted = WebhookTarget(**({"kind": "task", "url": url} | target))
        execution_id = await self.execution(wanted)
        await self.queue(execution_id, wanted, *bodies)
        return execution_id

    async def waiting(self) -> list[Any]:
        """The calls that are not done: the first of each execution and target."""
        return await self.journal.due_deliveries(NOW + timedelta(days=99), 100)

    async def until(self, met: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait until what waits is as wanted. Each look takes real time, on a thread."""
        while not met(found := await self.waiting()):
            pass
        return found

    def last_error(self) -> str:
        """Why the one call that waits failed."""
        with closing(sqlite3.connect(self.path)) as other_program:
            (why,) = other_program.execute("SELECT last_error FROM deliveries").fetchone()
        return str(why)

    async def done(self) -> None:
        await self.until(lambda waiting: not waiting)

    async def begin(self, **options: Any) -> Callable[[], None]:
        """Start the part; returns what stops it."""
        given: dict[str, Any] = {"allow": LOOPBACK, "key": None} | options
        webhooks = Webhooks(self.journal, wall=self.wall, **given)
        scope = trio.CancelScope()

        async def run(task_status: trio.TaskStatus[None]) -> None:
            with scope:
                await webhooks.run(task_status)

        await self.nursery.start(run)
        self._nudge = webhooks.nudge
        self.timings = webhooks.timings
        return scope.cancel

    def nudge(self) -> None:
        self._nudge()


@pytest.fixture
async def desk(tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(schema, "SYNCHRONOUS", "OFF")
    kept = Retention(age=timedelta(days=30), count=1000)
    path = tmp_path / "journal.db"
    journal = Journal(path, key=SecretBytes(b"k" * 32), retention=kept)
    await nursery.start(journal.run)
    return Desk(path, journal, nursery)
