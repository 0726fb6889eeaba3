"""Receivers on loopback that misbehave as told."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import h11
import pytest
import trio

from tests.fakes.receiver import Call, read_call

Behaviour = Callable[[trio.SocketStream], Awaitable[None]]


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
    received: list[Call] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    connections: int = 0
    usual: Behaviour = field(default_factory=lambda: answer(200))
    _news: trio.Event = field(default_factory=trio.Event)

    def url(self, path: str = "/hook") -> str:
        return f"http://{self.host}:{self.port}{path}"

    @property
    def bodies(self) -> list[bytes]:
        return [each.content for each in self.received]

    async def until(self, count: int) -> list[Call]:
        """Wait until it has got so many requests."""
        while len(self.received) < count:
            await self._news.wait()
        return self.received

    async def serve(self, stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with stream:
                self.connections += 1
                while request := await read_call(h11.Connection(h11.SERVER), stream):
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
