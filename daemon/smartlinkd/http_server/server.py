"""`serve`: accept connections, bound their number, and drain them at the stop."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from operator import attrgetter
from typing import Final

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from smartlinkd.http_server.app import GuardedQuart
from smartlinkd.http_server.connection import HttpConnection
from smartlinkd.http_server.failures import failure
from smartlinkd.http_server.http1 import CLOSE, request_id, request_id_header
from smartlinkd.http_server.places import DEFAULT_LIMITS, HttpLimits, Places

logger = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 60.0
"""Seconds until a shortage is logged again: one of connections, without a refusal in between."""

_ASKED = 64 * 1024  # bytes that a refused client may have sent meanwhile
_TRIES: Final = logging.getLogger("trio.serve_listeners")


class ServedApp(ASGIWrapper):
    """The app that is served. Another can replace it at any time.

    A request under way is answered by the app it began with, and the next one of the same
    connection by the new one.
    """

    app: GuardedQuart

    def replace(self, app: GuardedQuart) -> None:
        """Serve this app from now on."""
        app.stopping = self.app.stopping
        app.places = self.app.places
        self.app = app


async def serve(
    served: ServedApp,
    sockets: Sequence[socket.socket],
    *,
    grace: float,
    stop: trio.Event,
    limits: HttpLimits = DEFAULT_LIMITS,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an app on listening `sockets` (which stay the caller's, and open) until `stop`.

    `started()` says that connections are accepted. At `stop` no more are, idle ones end in half a
    second unless they ask once more, and requests have `grace` seconds; then they are cancelled.
    Returns when every connection is closed. Cancelling it does the same without the grace.
    """
    served.app.stopping = stop
    served.app.places = Places(limits.connections)
    context = WorkerContext(None)
    acceptor = _Acceptor(served, context, limits)
    # Duplicates, since trio closes what it is given and the next instance needs the sockets.
    listeners = [
        trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup()))
        for listening in sockets
    ]
    one_a_minute = _OneAMinute()
    _TRIES.addFilter(one_a_minute)
    try:
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                await accepting.start(
                    partial(
                        trio.serve_listeners,
                        acceptor.accept,
                        listeners,
                        handler_nursery=connections,
                    )
                )
                task_status.started()
                await stop.wait()
                accepting.cancel_scope.cancel()
            await context.terminated.set()
            connections.cancel_scope.deadline = trio.current_time() + grace
    finally:
        _TRIES.removeFilter(one_a_minute)
        for listener in listeners:
            listener.socket.close()


class _OneAMinute(logging.Filter):
    """Lets one record a minute pass: without a free descriptor trio logs ten tries a second."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at = -inf  # Unix seconds

    def filter(self, record: logging.LogRecord) -> bool:
        is_due = record.created - self._passed_at > LOG_INTERVAL_S
        if is_due:
            self._passed_at = record.created
        return is_due


class _Acceptor:
    """Serves as many connections as the limits allow. An idle one is closed for a newcomer."""

    def __init__(self, served: ServedApp, context: WorkerContext, limits: HttpLimits) -> None:
        self._served = served
        self._config = _config(limits)
        self._context = context
        self._limits = limits
        self._connections: dict[HttpConnection, None] = {}  # oldest first
        self._refusals = 0  # under way
        self._full_at = -inf  # the last time, on trio's clock

    async def accept(self, stream: trio.SocketStream) -> None:
        """Serve one accepted connection; the caller closes it."""
        if len(self._connections) >= self._limits.connections and not self._close_idlest():
            return await self._refuse(stream)
        connection = HttpConnection(self._served, self._config, self._context, stream, self._limits)
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            self._connections.pop(connection, None)  # one that was closed for another is out
        return None

    def _close_idlest(self) -> bool:
        """Close the connection that has been idle the longest (RFC 9112, section 9.5).

        Returns False if none is idle.
        """
        for connection in sorted(self._connections, key=attrgetter("idle_since")):
            if connection.close_if_idle():
                del self._connections[connection]
                return True
        return False

    async def _refuse(self, stream: trio.SocketStream) -> None:
        """Answer 503 to whatever will be asked.

        The closing of a few is waited for, so that they are sure to read it. The others read it
        unless they send more than has come by now: no crowd of them holds descriptors.
        """
        self._log_full()
        with suppress(OSError):  # the client has gone
            os.write(stream.socket.fileno(), _no_connection_free(self._served.app))
            stream.socket.shutdown(socket.SHUT_WR)
        if self._refusals >= self._limits.refusals:
            with suppress(OSError):  # nothing has been asked
                os.read(stream.socket.fileno(), _ASKED)
            return
        self._refusals += 1
        try:
            with (
                trio.move_on_after(self._limits.linger_seconds),
                suppress(trio.BrokenResourceError),
            ):
                while await stream.receive_some():
                    pass
        finally:
            self._refusals -= 1

    def _log_full(self) -> None:
        """Log it once, until there was room for a while: who is refused comes again at once."""
        now = trio.current_time()
        if now - self._full_at > LOG_INTERVAL_S:
            logger.warning("all %d connections are at work: refusing more", len(self._connections))
        self._full_at = now


def _config(limits: HttpLimits) -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logger
    config.include_server_header = False
    config.h11_max_incomplete_size = limits.head_bytes
    return config


def _no_connection_free(app: GuardedQuart) -> bytes:
    headers, body = failure(app.failure_body, 503)
    fields = [b": ".join(field) for field in [*headers, request_id_header(request_id(())), CLOSE]]
    return b"\r\n".join([b"HTTP/1.1 503 Service Unavailable", *fields, b"", body])
