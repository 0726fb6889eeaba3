"""The internet that webhooks go out to, played: receivers at addresses, and ways to have none.

The seam is `trio.open_tcp_stream`, and trio's own hook for names: what the daemon looks at before
it connects, and how it speaks HTTP, is its own and httpcore's. A connection is a pair of sockets in
this process, so the kernel's rules for closed and reset ones hold.
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
"""Where they are: what `webhooks.allow` has to name, for no real receiver is there."""

Behaviour = Callable[[trio.SocketStream], Awaitable[bool]]
"""What is done with a request; whether that was to take it."""


def answer(status: int, **headers: str) -> Behaviour:
    """An answer without a body; `Retry_After="3"` is the header Retry-After."""
    given = [(name.replace("_", "-"), value) for name, value in headers.items()]

    async def say(stream: trio.SocketStream) -> bool:
        connection = h11.Connection(h11.SERVER)
        head = h11.Response(status_code=status, headers=[*given, ("Content-Length", "0")])
        with trio.CancelScope(shield=True):  # what was said cannot be said otherwise any more
            await stream.send_all(connection.send(head) + connection.send(h11.EndOfMessage()))
            if headers.get("Connection") == "close":
                await stream.aclose()
        return status < 300

    return say


def late(seconds: float) -> Behaviour:
    """200, after so long."""

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
    """Somebody's server. `usual` is what it answers, `next` what it does to the next requests."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.usual: Behaviour = answer(200)
        self.next: deque[Behaviour] = deque()
        self.calls: list[Call] = []
        self.taken: list[Call] = []
        """Those that were answered with 2xx, in the order of that."""
        self.down: OSError | None = None
        """What who connects gets; `TimeoutError` means that nothing comes at all."""
        self.connections = 0
        self._open: list[trio.SocketStream] = []
        self._in_hand: list[trio.CancelScope] = []

    def url(self, path: str = "/hook") -> str:
        return f"http://{self.host}{path}"

    def becomes(self, behaviour: Behaviour) -> None:
        """From now on it does that, also with the requests that it has in hand."""
        self.usual = behaviour
        self.next.clear()
        for each in self._in_hand:
            each.cancel()

    def goes_down(self, fault: OSError) -> None:
        """Nobody is there from now on: who connects gets the fault."""
        self.down = fault
        self.becomes(hang if isinstance(fault, TimeoutError) else reset)

    def hang_up(self) -> None:
        """Close all connections, as one does that were idle for long."""
        for each in self._open:
            each.socket.shutdown(socket.SHUT_RDWR)

    def heal(self, usual: Behaviour) -> None:
        """It is there, and does that."""
        self.down = None
        self.becomes(usual)

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self._open.append(stream)
        try:
            async with stream:
                connection = h11.Connection(h11.SERVER)
                while (call := await read_call(connection, stream)) is not None:
                    self.calls.append(call)
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
                try:
                    return await behaviour(stream)
                finally:
                    self._in_hand.remove(scope)
            behaviour = self.usual


@dataclass
class Internet:
    """Who is there. `nursery` is where servers live; it outlives the daemon, as they do."""

    receivers: dict[str, Receiver] = field(default_factory=dict)
    nursery: trio.Nursery | None = None

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every connection go here."""
        patch.setattr(trio, "open_tcp_stream", self._open)

    def receiver(self, host: str = "192.0.2.7") -> Receiver:
        """The one there; one is there from now on."""
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
    """Nobody listens there."""
    return ConnectionRefusedError(111, os.strerror(111))
