"""A webhook receiver on loopback, and a reader of HTTP requests for others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import trio

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """A webhook call or another request, as received. `path` includes the query."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes = field(repr=False)

    @property
    def body(self) -> Json:
        found: Json = json.loads(self.content)
        return found

    @property
    def id(self) -> str:
        """The webhook-id header: the same in each attempt."""
        return self.headers["webhook-id"]


async def read_call(connection: h11.Connection, stream: trio.SocketStream) -> Call | None:
    """Return the next request; None if the client left before the end of one."""
    head: h11.Request | None = None
    content = b""
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                if not (data := await stream.receive_some()):
                    return None
                connection.receive_data(data)
            case h11.Request() as head:
                pass
            case h11.Data(data=data):
                content += data
            case h11.EndOfMessage():
                assert head is not None
                headers = {name.decode(): value.decode() for name, value in head.headers}
                return Call(head.method.decode(), head.target.decode(), headers, content)
            case _:
                return None


@dataclass
class Receiver:
    """A receiver that answers each call with the status that `answer` returns.

    `calls` are those answered with 2xx, in the order of the answers.
    """

    url: str
    answer: Callable[[Call], Awaitable[int]]
    calls: list[Call] = field(default_factory=list)

    def at(self, path: str) -> list[Call]:
        """Return the calls accepted at this path."""
        return [call for call in self.calls if call.path == path]

    async def serve(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        async with stream:
            with suppress(trio.BrokenResourceError):  # the daemon was killed
                while (call := await read_call(connection, stream)) is not None:
                    status = await self.answer(call)
                    head = h11.Response(status_code=status, headers=[("Content-Length", "0")])
                    sent = connection.send(head) + connection.send(h11.EndOfMessage())
                    await stream.send_all(sent)
                    if status < 300:
                        self.calls.append(call)
                    connection.start_next_cycle()


async def _take(_: Call) -> int:
    return 200


@asynccontextmanager
async def open_receiver(
    answer: Callable[[Call], Awaitable[int]] = _take,
) -> AsyncIterator[Receiver]:
    """Serve a receiver while the block runs. By default it answers 200."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    receiver = Receiver(f"http://127.0.0.1:{listener.socket.getsockname()[1]}", answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, receiver.serve, [listener]))
        yield receiver
        nursery.cancel_scope.cancel()
