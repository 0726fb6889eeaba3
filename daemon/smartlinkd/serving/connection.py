"""One accepted connection, from its first byte to its end, whatever goes wrong in it.

Each guard is an override, as in `http1.py`.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import struct
import termios
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
from smartlinkd.serving.app import Messages
from smartlinkd.serving.http1 import Http1

logger = logging.getLogger(__name__)

MOST_READ = 8 * 1024  # bytes at once: nobody else runs while they are parsed, be it a chunk a byte
SEND_SLICE = 64 * 1024  # bytes; `Limits.send_seconds` is for one of these
LINGER_SECONDS = 1.0  # how long a closed connection is still read, for its last answer to arrive
LAST_CALL_SECONDS = 0.5  # after a stop, for requests that were on their way; most of a round trip

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_IPV4_IN_IPV6 = "::ffff:"


class Tasks(TaskGroup):
    """Those of one connection."""

    async def spawn_app(
        self,
        app: AppWrapper,
        config: Config,
        scope: Scope,
        send: Callable[[ASGISendEvent | None], Awaitable[None]],
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        """As upstream's, with `Messages` in the place of a channel."""
        messages = Messages()
        threads = (trio.to_thread.run_sync, trio.from_thread.run)
        assert self._nursery is not None  # noqa: S101 - it is entered; for the type checker
        self._nursery.start_soon(_handle, app, config, scope, messages, send, *threads)
        return messages.put


class Connection(TCPServer):
    """One accepted connection, from its first byte to its end."""

    # The wrapper upstream puts here exists to change to HTTP/2, which never happens.
    protocol: Http1  # type: ignore[assignment]

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        *,
        send_seconds: float,
    ) -> None:
        # Upstream says SSLStream, and takes both.
        super().__init__(app, config, context, LifespanState({}), stream)  # type: ignore[arg-type]
        self.stream: trio.SocketStream = stream  # type: ignore[assignment]
        self._send_seconds = send_seconds
        self._talking = trio.CancelScope()
        self.idle_since = trio.current_time()  # `inf` while there is a request to answer
        self._has_said_all = False

    def give_way(self) -> bool:
        """Close at once when idle; whether it was. The tasks in `run` end by themselves after it.

        What has arrived and was not read yet may be a request, so its sender is not idle. Nobody
        gains time by that: it is read in the same turn of the loop, or in the next. A client that
        has left has nothing to be read: hundreds that leave together make room at once.

        A connection that had its last answer is idle, whatever its client still sends.
        """
        accepted = self.stream.socket
        closed = accepted.fileno() < 0  # by its idle time, just now
        if self._has_said_all and not closed:
            with suppress(OSError):
                # Closing with bytes unread resets the connection, and the answer may be lost.
                os.read(accepted.fileno(), SEND_SLICE)
        elif self.idle_since == inf or (not closed and _unread(accepted.fileno())):
            return False
        accepted.close()
        self._talking.cancel()  # else a pipelined request is begun, with nobody to answer
        return True

    async def run(self) -> None:
        """Guard 1: whatever goes wrong in here ends here."""
        try:
            await self._talk()
        except* Exception as group:  # noqa: BLE001 - not ours to tell which, nor to die of
            # Types and places alone: an h11 error quotes the client's own bytes.
            logger.warning(
                "a connection was ended by %s", ", ".join(map(_type_and_line, leaves(group)))
            )

    async def _talk(self) -> None:
        try:
            client = _peer(self.stream.socket)
        except OSError:
            return  # gone before we looked
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
        """Guard 3: after our end of file, read on until the client's: the answer arrives."""
        with self._talking:
            # As upstream's, whose deadline for each read would cost more than the read itself.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                while data := await self._hear():
                    await self.protocol.handle(RawData(data))
                await self.protocol.handle(RawData(b""))
            await self.protocol.handle(Closed())
        with (
            trio.move_on_after(LINGER_SECONDS),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            while await self.stream.receive_some(MOST_READ):
                pass

    async def _hear(self) -> bytes:
        """What has arrived, as soon as something has; b"" at the client's end of file. Raises
        `trio.BrokenResourceError` or `trio.ClosedResourceError`.

        The stream's own reading yields once more when it did not have to wait. For that turn of the
        loop a request is neither in the kernel nor with us, and its sender would have to give way.
        """
        while True:
            if self.stream.socket.fileno() < 0:
                raise trio.ClosedResourceError  # trio would keep that somebody waits at -1
            await trio.lowlevel.wait_readable(self.stream.socket)
            try:
                return os.read(self.stream.socket.fileno(), MOST_READ)
            except BlockingIOError:
                pass  # woken for nothing
            except OSError as error:  # the client's reset, or closed by us in this very turn
                raise trio.BrokenResourceError from error

    async def _idle_timeout(self) -> None:
        """Guard 11: at a stop, who was let in and has said nothing yet may still ask once.

        Faster than upstream's, too: it stays while requests come and go, and looks at its times
        when they are over, where that one is started and cancelled with each request.
        """
        terminated, patience = self.context.terminated, self.config.keep_alive_timeout
        while not terminated.is_set() and trio.current_time() < self.idle_since + patience:
            with trio.move_on_at(min(self.idle_since, trio.current_time()) + patience):
                await terminated.wait()
            # Where all was held up, a request may be there as well: its reader runs in this turn.
            await trio.lowlevel.checkpoint()
        if terminated.is_set():
            await trio.sleep(LAST_CALL_SECONDS)
        if self.idle_since != inf:  # else its answer is its last
            with trio.CancelScope(shield=True):
                await self._initiate_server_close()

    async def protocol_send(self, event: Event) -> None:
        """Guard 3: a send ends in time, or its connection does."""
        if isinstance(event, RawData):
            await self._send(event.data)
        elif isinstance(event, Closed):
            # Not `send_eof`: that one yields, and keeps others from sending meanwhile.
            with suppress(OSError):
                self.stream.socket.shutdown(socket.SHUT_WR)
            self._has_said_all = True
            self.idle_since = trio.current_time()
            await self._end()
        elif isinstance(event, Updated):
            self.idle_since = trio.current_time() if event.idle else inf

    async def _send(self, data: bytes) -> None:
        try:
            async with self.send_lock:
                for start in range(0, len(data), SEND_SLICE):
                    deadline = trio.current_time() + self._send_seconds
                    with trio.CancelScope(deadline=deadline) as patience:
                        await self.stream.send_all(data[start : start + SEND_SLICE])
                    if patience.cancelled_caught:
                        raise trio.TooSlowError  # noqa: TRY301 - as `fail_after` would
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._end()
        except trio.TooSlowError:
            logger.info("a client stopped reading its answer and was cut off")
            self._cut()
            await self._end()
        except trio.Cancelled:
            self._cut()  # part of an answer was sent: nothing can follow it
            raise

    async def _end(self) -> None:
        """No more is said or heard: cancels the handler, then frees the reader.

        The reader may wait behind a pipelined request for its turn, which upstream never gives it
        when the client has left in the middle of an answer.
        """
        await self.protocol.handle(Closed())
        self._talking.cancel()

    def _cut(self) -> None:
        """Close at once and throw away what is unsent: nobody waits for it in the kernel either."""
        with suppress(OSError):
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.stream.socket.close()
        self._talking.cancel()


def _peer(accepted: trio.socket.SocketType) -> tuple[str, int]:
    """The client's address; that of an IPv4 client of an IPv6 socket in its own form."""
    host, port = accepted.getpeername()[:2]
    return host.removeprefix(_IPV4_IN_IPV6), port


def _unread(descriptor: int) -> int:
    """Bytes that have arrived at a socket and were not read."""
    waiting = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(struct.calcsize("i")))
    return int(struct.unpack("i", waiting)[0])


def _type_and_line(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}"
