"""A receiver on loopback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
import trio

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Receiver:
    """Keeps what came, and gives the first of `answers`, or 204."""

    url: str = ""
    bodies: list[dict[str, str]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    answers: list[bytes] = field(default_factory=list)
    hangs: bool = False

    async def answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received or not received.endswith(b"}"):
                received += await stream.receive_some()
            head, _, body = received.partition(b"\r\n\r\n")
            self.heads.append(head.decode())
            self.bodies.append(json.loads(body))
            if self.hangs:
                await trio.sleep_forever()
            with suppress(trio.BrokenResourceError):
                await stream.send_all(self.answers.pop(0) if self.answers else OK)


@pytest.fixture
async def receiver(nursery: trio.Nursery) -> AsyncIterator[Receiver]:
    made = Receiver()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(trio.serve_listeners, made.answer, listeners)
    made.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/a-key-in-the-path?x=1"
    yield made
    nursery.cancel_scope.cancel()
