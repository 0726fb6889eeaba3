"""`serve`: accept, hand to a `Connection`, drain."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from operator import attrgetter

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from smartlinkd.accepting import LOG_INTERVAL_S, PatientListener
from smartlinkd.serving.app import CONNECTIONS, GuardedQuart
from smartlinkd.serving.connection import LINGER_SECONDS, Connection
from smartlinkd.serving.failures import failure
from smartlinkd.serving.http1 import CLOSE
from smartlinkd.serving.ids import header_of, request_id
from smartlinkd.serving.places import Places
from smartlinkd.serving.upstream import check_upstream

logger = logging.getLogger(__name__)

TURNED_AWAY = 64  # clients at once whose closing is waited for, so that they are sure to read it
_ASKED = 64 * 1024  # bytes of what they may have asked meanwhile


@dataclass(frozen=True)
class Limits:
    """What one client may take. Seconds and bytes."""

    connections: int = CONNECTIONS
    """At once, to all sockets of one server. The next one takes the place of the one that has been
    idle the longest, and gets 503 when none is idle. Times `max_body` it is the memory that unread
    bodies can take; what it leaves of descriptors: `processes/descriptors.py`."""
    head_bytes: int = 16 * 1024
    """Request line and headers."""
    idle_seconds: float = 15.0
    """From the accept, or the end of an answer, to the end of the next request head. That is also
    what idle means above: a head that drips in makes nobody less idle."""
    send_seconds: float = 4.0
    """For 64 KiB of an answer: who takes less is cut off. It is also what such a client can delay
    a shutdown by."""


class Served(ASGIWrapper):
    """The app that is served. Another may take its place at any time: a request that is under way
    is answered by the one it began with, and the next one of the same connection by the new one."""

    app: GuardedQuart

    def __init__(self, app: GuardedQuart) -> None:
        super().__init__(app)
        self._stopping = app.stopping
        self._places = app.places

    def take(self, app: GuardedQuart) -> None:
        """Serve this one from now on. Raises `TypeError` for one with functions for Quart's
        lifespan."""
        if app.before_serving_funcs or app.while_serving_gens or app.after_serving_funcs:
            raise TypeError("there is no lifespan here: start it under the supervisor instead")
        app.stopping = self._stopping
        app.places = self._places
        self.app = app

    def begin(self, stop: trio.Event, places: Places) -> None:
        """Serve the app until `stop`, with these `places`. Raises what `take` raises."""
        self._stopping = stop
        self._places = places
        self.take(self.app)


async def serve(
    served: Served,
    sockets: Sequence[socket.socket],
    *,
    grace: float,
    stop: trio.Event,
    limits: Limits = Limits(),
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an app on listening `sockets` (which stay the caller's, and open) until `stop`.

    `started()` says that connections are accepted. At `stop` no more are, idle ones end in half a
    second unless they ask once more, and requests have `grace` seconds; then they are cancelled.
    Returns when every connection is closed. Cancelling it does the same without the grace. Raises
    `TypeError` for an app with functions for Quart's lifespan, `RuntimeError` for an upstream
    release it is not for.
    """
    check_upstream()
    served.begin(stop, Places(limits.connections))
    context = WorkerContext(None)
    door = _Door(served, context, limits)
    listeners = [
        trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup()))
        for listening in sockets
    ]
    try:
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                await accepting.start(
                    partial(
                        trio.serve_listeners,
                        door.enter,
                        [PatientListener(listener) for listener in listeners],
                        handler_nursery=connections,
                    )
                )
                task_status.started()
                await stop.wait()
                accepting.cancel_scope.cancel()
            await context.terminated.set()
            connections.cancel_scope.deadline = trio.current_time() + grace
    finally:
        for listener in listeners:
            listener.socket.close()


class _Door:
    """Lets in as many connections as there is room for, at the cost of those that do nothing."""

    def __init__(self, served: Served, context: WorkerContext, limits: Limits) -> None:
        self._served = served
        self._config = _config(limits)
        self._context = context
        self._limits = limits
        self._inside: dict[Connection, None] = {}  # in the order they came in
        self._turned_away = 0
        self._full_at = -inf  # the last time, on trio's clock

    async def enter(self, stream: trio.SocketStream) -> None:
        """Serve one accepted connection; whoever calls closes it."""
        if len(self._inside) >= self._limits.connections and not self._make_room():
            return await self._turn_away(stream)
        connection = Connection(
            self._served,
            self._config,
            self._context,
            stream,
            send_seconds=self._limits.send_seconds,
        )
        self._inside[connection] = None
        try:
            await connection.run()
        finally:
            self._inside.pop(connection, None)  # one that gave way is out already
        return None

    def _make_room(self) -> bool:
        """Close the connection that has been idle the longest; whether there was one."""
        for connection in sorted(self._inside, key=attrgetter("idle_since")):
            if connection.give_way():
                del self._inside[connection]
                return True
        return False

    async def _turn_away(self, stream: trio.SocketStream) -> None:
        """Answer 503 to whatever will be asked. Of more than so many at once nobody is held: they
        read the answer unless they ask more than has come by now."""
        self._note_full()
        if self._turned_away >= TURNED_AWAY:
            with suppress(OSError):  # gone, or nothing has been asked
                os.write(stream.socket.fileno(), _no_room(self._served.app))
                stream.socket.shutdown(socket.SHUT_WR)
                os.read(stream.socket.fileno(), _ASKED)
            return
        self._turned_away += 1
        try:
            with trio.move_on_after(LINGER_SECONDS), suppress(trio.BrokenResourceError):
                await stream.send_all(_no_room(self._served.app))
                await stream.send_eof()
                while await stream.receive_some():
                    pass
        finally:
            self._turned_away -= 1

    def _note_full(self) -> None:
        """Log it once, until there was room for a while: whoever is refused comes again at once."""
        now = trio.current_time()
        if now - self._full_at > LOG_INTERVAL_S:
            logger.warning("all %d connections are at work: refusing more", len(self._inside))
        self._full_at = now


def _config(limits: Limits) -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logger
    config.include_server_header = False
    config.h11_max_incomplete_size = limits.head_bytes
    config.keep_alive_timeout = limits.idle_seconds
    return config


def _no_room(app: GuardedQuart) -> bytes:
    headers, body = failure(app.failure_body, 503)
    fields = [b": ".join(field) for field in [*headers, header_of(request_id(())), CLOSE]]
    return b"\r\n".join([b"HTTP/1.1 503 Service Unavailable", *fields, b"", body])
