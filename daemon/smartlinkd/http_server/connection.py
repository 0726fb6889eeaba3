"""One accepted connection, from its first byte to its end, whatever goes wrong in it.

Each guard is an override of hypercorn's `TCPServer` (docs/decisions/075-http-server.md).
"""

from __future__ import annotations

import logging
import socket
import struct
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.task_group import TaskGroup, _handle
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveEvent,
    ASGISendEvent,
    ConnectionState,
    LifespanState,
    Scope,
)

from smartlinkd.errors import leaves
from smartlinkd.http_server.app import Messages
from smartlinkd.http_server.http1 import Http1
from smartlinkd.http_server.places import HttpLimits

logger = logging.getLogger(__name__)

MOST_READ = 8 * 1024  # bytes; no other task runs while they are parsed, even as chunks of a byte
SEND_SLICE = 64 * 1024  # bytes; `HttpLimits.send_seconds` is for one of these

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Tasks(TaskGroup):
    """The tasks of one connection's requests. Each is given `Messages` in place of a channel."""

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """Start the task of a request. Returns the function that tells it a message."""
        messages = Messages()
        threads = (trio.to_thread.run_sync, trio.from_thread.run)
        assert self._nursery is not None  # noqa: S101 - it is entered; for the type checker
        self._nursery.start_soon(_handle, app, config, scope, messages, send, *threads)
        return messages.put


class HttpConnection(TCPServer):
    """One accepted connection."""

    # The wrapper upstream puts here exists to change to HTTP/2, which never happens.
    protocol: Http1  # type: ignore[assignment]

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        limits: HttpLimits,
    ) -> None:
        # Upstream says SSLStream, and takes both.
        super().__init__(app, config, context, LifespanState({}), stream)  # type: ignore[arg-type]
        self.stream: trio.SocketStream = stream  # type: ignore[assignment]
        self._limits = limits
        self._reading = trio.CancelScope()
        self.idle_since = trio.current_time()  # `inf` while there is a request to answer

    def close_if_idle(self) -> bool:
        """Close the connection at once and return True, unless a request is being answered.

        After its last answer it is idle, whatever its client still sends.
        """
        if self.idle_since == inf:
            return False
        self.stream.socket.close()
        self._reading.cancel()  # else a pipelined request is begun, with nobody to answer
        return True

    async def run(self) -> None:
        """Serve the connection's requests. An error ends this connection and no other."""
        try:
            await self._serve()
        except* Exception as group:  # noqa: BLE001 - upstream's, of any kind
            # Types and places alone: an h11 error quotes the client's own bytes.
            logger.warning(
                "a connection was ended by %s", ", ".join(map(_type_and_line, leaves(group)))
            )

    async def _serve(self) -> None:
        try:
            client = self.stream.socket.getpeername()[:2]
        except OSError:
            return  # the client has left already
        async with Tasks() as tasks:
            self._task_group = tasks
            self.protocol = Http1(
                self.app,
                self.config,
                self.context,
                tasks,
                ConnectionState(self.state),
                False,
                client,
                self.stream.socket.getsockname()[:2],
                self.protocol_send,
            )
            await self.idle_task.restart(tasks, self._idle_timeout)
            await self._read_data()
            await self.idle_task.stop()  # else an idle client that left is kept until it expires

    async def _read_data(self) -> None:
        with self._reading:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await self.stream.receive_some(MOST_READ):
                    await self.protocol.handle(RawData(bytes(data)))
                await self.protocol.handle(RawData(b""))
            await self.protocol.handle(Closed())
        # Closing with bytes unread resets the connection, and the client may lose its answer.
        with (
            trio.move_on_after(self._limits.linger_seconds),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            while await self.stream.receive_some(MOST_READ):
                pass

    async def _idle_timeout(self) -> None:
        """Close the connection when it has been idle too long, or soon after the server's stop.

        It runs as long as the connection: docs/decisions/076-http-server-speed.md.
        """
        terminated, patience = self.context.terminated, self._limits.idle_seconds
        while not terminated.is_set() and trio.current_time() < self.idle_since + patience:
            with trio.move_on_at(min(self.idle_since, trio.current_time()) + patience):
                await terminated.wait()
        if terminated.is_set():
            await trio.sleep(self._limits.last_call_seconds)  # a request may be on its way
        if self.idle_since != inf:  # else its answer is its last
            with trio.CancelScope(shield=True):
                await self._initiate_server_close()

    async def protocol_send(self, event: Event) -> None:
        """Send bytes in a bounded time, or end the connection."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            # Not `send_eof`: that one yields, and keeps others from sending meanwhile.
            with suppress(OSError):
                self.stream.socket.shutdown(socket.SHUT_WR)
            self.idle_since = trio.current_time()
            await self._stop_reading()
        elif isinstance(event, Updated):
            self.idle_since = trio.current_time() if event.idle else inf

    async def _send(self, data: bytes) -> None:
        try:
            async with self.send_lock:
                for start in range(0, len(data), SEND_SLICE):
                    with trio.fail_after(self._limits.send_seconds):
                        await self.stream.send_all(data[start : start + SEND_SLICE])
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stop_reading()
        except trio.TooSlowError:
            logger.info("a client stopped reading its answer and was cut off")
            self._reset()
            await self._stop_reading()
        except trio.Cancelled:
            self._reset()  # part of an answer was sent: nothing can follow it
            raise

    async def _stop_reading(self) -> None:
        """Cancel the handler, then free the reader.

        The reader may wait behind a pipelined request for its turn, which upstream never gives it
        when the client has left in the middle of an answer.
        """
        await self.protocol.handle(Closed())
        self._reading.cancel()

    def _reset(self) -> None:
        """Close at once and drop the bytes that the kernel has not sent."""
        with suppress(OSError):
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.stream.socket.close()
        self._reading.cancel()


def _type_and_line(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
