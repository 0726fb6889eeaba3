"""Takes the webhook calls of the soak's executions, and refuses some at first."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import h11
import trio


class Receiver:
    """Listens at `url`. Whoever expects a call says so before it can come."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.refusing: set[str] = set()
        """Executions whose next call is refused."""
        self._ended: dict[str, trio.Event] = {}
        self._early: set[str] = set()

    async def told_of_end(self, execution: str) -> None:
        """Wait until the end of an execution was told, at /end."""
        if execution in self._early:
            self._early.remove(execution)
            return
        event = self._ended[execution] = trio.Event()
        try:
            await event.wait()
        finally:
            del self._ended[execution]

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        connection = h11.Connection(h11.SERVER)
        async with stream:
            with suppress(trio.BrokenResourceError):
                while (call := await _read(connection, stream)) is not None:
                    head = h11.Response(
                        status_code=self._status(*call), headers=[("Content-Length", "0")]
                    )
                    sent = connection.send(head) + connection.send(h11.EndOfMessage())
                    await stream.send_all(sent)
                    connection.start_next_cycle()

    def _status(self, path: str, content: bytes) -> int:
        body = json.loads(content)
        about = body["events"][0]["execution_id"] if "events" in body else body["kickoff_id"]
        if about in self.refusing:
            self.refusing.remove(about)
            return 500
        if path == "/end":
            event = self._ended.get(about)
            if event is None:
                self._early.add(about)
            else:
                event.set()
        return 200


async def _read(connection: h11.Connection, stream: trio.SocketStream) -> tuple[str, bytes] | None:
    """The path and body of the next call; None when there are no more, also in the midst of one."""
    path, content = "", b""
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                data = await stream.receive_some()
                if not data and path:
                    return None
                connection.receive_data(data)
            case h11.Request(target=target):
                path = target.decode()
            case h11.Data(data=data):
                content += data
            case h11.EndOfMessage():
                return path, content
            case _:
                return None


@asynccontextmanager
async def open_receiver() -> AsyncIterator[Receiver]:
    """One on loopback, while the block runs."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    receiver = Receiver(f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(trio.serve_listeners, receiver.serve, [listener]))
        yield receiver
        nursery.cancel_scope.cancel()
