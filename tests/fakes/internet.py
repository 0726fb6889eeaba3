"""A fake internet: webhook receivers by IP address, and ways in which they fail.

It replaces `trio.open_tcp_stream` alone; address checks and HTTP are the daemon's and httpcore's. A
connection is a socket pair in this process, so closing it behaves as in the kernel.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import h11
import pytest
import trio

from tests.fakes.receiver import Call, read_call

NETWORK = "192.0.2.0/24"
"""The receivers' network (RFC 5737). `webhooks.allow` must name it, as it is not public."""

Behaviour = Callable[[trio.SocketStream], Awaitable[bool]]
"""Handle one request; return True if the receiver accepted it."""


def answer(status: int, **headers: str) -> Behaviour:
    """Answer with this status and no body. `Retry_After="3"` is the header Retry-After."""
    given = [(name.replace("_", "-"), value) for name, value in headers.items()]

    async def say(stream: trio.SocketStream) -> bool:
        connection = h11.Connection(h11.SERVER)
        head = h11.Response(status_code=status, headers=[*given, ("Content-Length", "0")])
        with trio.CancelScope(shield=True):  # an answer that has begun is sent whole
            await stream.send_all(connection.send(head) + connection.send(h11.EndOfMessage()))
            if headers.get("Connection") == "close":
                await stream.aclose()
        return status < 300

    return say


def late(seconds: float) -> Behaviour:
    """Answer 200 after so many seconds."""

    async def say(stream: trio.SocketStream) -> bool:
        await trio.sleep(seconds)
        return await answer(200)(stream)

    return say


async def hang(_: trio.SocketStream) -> bool:
    await trio.Event().wait()
    return False


async def reset(stream: trio.SocketStream) -> bool:
    await stream.aclose()
    return False


class Receiver:
    """A webhook receiver. `next` handles the next requests, `usual` all others."""

    def __init__(self, host: str, port: int | None = None) -> None:
        self.host = host
        self.port = port
        self.usual: Behaviour = answer(200)
        self.next: deque[Behaviour] = deque()
        self.calls: list[Call] = []
        self.taken: list[Call] = []
        """The calls answered with 2xx, in the order of the answers."""
        self.down: OSError | None = None
        """Error of each new connection, or None. With TimeoutError a connection never opens."""
        self.connections = 0
        self.most_at_once = 0
        """The most requests that were open at the same time."""
        self._news = trio.Event()
        self._open: list[trio.SocketStream] = []
        self._in_hand: list[trio.CancelScope] = []

    def url(self, path: str = "/hook") -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"http://{self.host}{port}{path}"

    @property
    def at_once(self) -> int:
        """The number of open requests."""
        return len(self._in_hand)

    @property
    def bodies(self) -> list[bytes]:
        return [call.content for call in self.calls]

    async def until(self, count: int) -> None:
        """Wait until this many requests have come."""
        while len(self.calls) < count:
            await self._news.wait()

    def set_behaviour(self, behaviour: Behaviour) -> None:
        """Use this behaviour from now on, also for the open requests."""
        self.usual = behaviour
        self.next.clear()
        for each in self._in_hand:
            each.cancel()

    def take_down(self, fault: OSError) -> None:
        """Fail all new connections with this error; open requests hang or are reset."""
        self.down = fault
        self.set_behaviour(hang if isinstance(fault, TimeoutError) else reset)

    def close_connections(self) -> None:
        """Close all connections, as a server closes idle ones."""
        for each in self._open:
            each.socket.shutdown(socket.SHUT_RDWR)

    def heal(self, usual: Behaviour) -> None:
        """Accept connections again and use this behaviour."""
        self.down = None
        self.set_behaviour(usual)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self._open.append(stream)
        try:
            async with stream:
                connection = h11.Connection(h11.SERVER)
                while (call := await read_call(connection, stream)) is not None:
                    self.calls.append(call)
                    self._news.set()
                    self._news = trio.Event()
                    if await self.behave(stream):
                        self.taken.append(call)
                    connection = h11.Connection(h11.SERVER)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self._open.remove(stream)

    async def behave(self, stream: trio.SocketStream) -> bool:
        behaviour = self.next.popleft() if self.next else self.usual
        while True:
            with trio.CancelScope() as scope:
                self._in_hand.append(scope)
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    return await behaviour(stream)
                finally:
                    self._in_hand.remove(scope)
            behaviour = self.usual


@dataclass
class Internet:
    """All receivers by address. Their tasks run in `nursery`, which outlives the daemon."""

    receivers: dict[str, Receiver] = field(default_factory=dict)
    nursery: trio.Nursery | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Send every TCP connection of the daemon to these receivers."""
        patch.setattr(trio, "open_tcp_stream", self._open)

    def receiver(self, host: str = "192.0.2.7") -> Receiver:
        """Return the receiver at the address; create it if there is none."""
        return self.receivers.setdefault(host, Receiver(host))

    async def _open(self, host: str, **_: Any) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        receiver = self.receivers.get(host)
        if receiver is None or isinstance(receiver.down, TimeoutError):
            await trio.sleep_forever()
            raise AssertionError
        if receiver.down is not None:
            raise receiver.down
        ours, theirs = trio.socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        assert self.nursery is not None
        self.nursery.start_soon(receiver.serve, trio.SocketStream(theirs))
        return trio.SocketStream(ours)


def refused() -> OSError:
    """Return the error of a port on which no server listens."""
    return ConnectionRefusedError(111, os.strerror(111))
