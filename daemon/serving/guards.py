"""The guards, one subclass for each upstream class at fault. What each is for: the package's head.

Each guard is an override, so that taking it out of its class gives the upstream behaviour back:
the tests do that.
"""

from __future__ import annotations

import fcntl
import logging
import re
import socket
import struct
import termios
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from math import inf
from typing import Any, NoReturn, cast
from urllib.parse import unquote

import h11
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import MAX_RECV, TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import (
    AppWrapper,
    ASGIReceiveCallable,
    ASGISendCallable,
    ASGISendEvent,
    ConnectionState,
    H11SendableEvent,
    LifespanState,
)
from hypercorn.utils import suppress_body
from quart.wrappers import Request as QuartRequest
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import BadHost
from werkzeug.routing import MapAdapter

from daemon.logs import Work, working_for
from daemon.serving.failures import FailureBody, failure, plain_body
from daemon.serving.ids import header_of, request_id

logger = logging.getLogger(__name__)

MAX_BODY = 1024 * 1024  # bytes of a request's body, as the clients were promised
BODY_SECONDS = 30  # for the whole body: 1 MiB at 35 KB/s
RESPONSE_SECONDS = 60  # for sending one answer; an event stream sets its own `timeout = None`
SEND_SLICE = 64 * 1024  # bytes; `Limits.send_seconds` is for one of these
LINGER_SECONDS = 1.0  # how long a closed connection is still read, for its last answer to arrive
LAST_CALL_SECONDS = 0.5  # after a stop, for requests that were on their way; most of a round trip
CLOSE = (b"connection", b"close")

_ABSOLUTE_FORM = re.compile(rb"https?://[^/?#]*(?=/)", re.IGNORECASE)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_IPV4_IN_IPV6 = "::ffff:"


@dataclass(frozen=True)
class Limits:
    """What one client may take. Seconds and bytes."""

    connections: int = 512
    """At once. The next one takes the place of the one that has been idle the longest, and gets 503
    when none is idle. Times `MAX_BODY` it is the memory that unread bodies can take, and it leaves
    half of the usual 1024 descriptors to the rest of the process."""
    head_bytes: int = 16 * 1024
    """Request line and headers."""
    idle_seconds: float = 15.0
    """From the accept, or the end of an answer, to the end of the next request head. That is also
    what idle means above: a head that drips in makes nobody less idle."""
    send_seconds: float = 4.0
    """For 64 KiB of an answer: who takes less is cut off. It is also what such a client can delay
    a shutdown by."""


LONGEST_PATH = 4096  # bytes of a request's first line that are looked at when it is refused


def check_upstream() -> None:
    """Raise `RuntimeError` when a name that a guard overrides or calls is no longer there."""
    names: dict[type, tuple[str, ...]] = {
        TCPServer: ("run", "protocol_send", "_read_data", "_idle_timeout",
                    "_initiate_server_close"),
        H11Protocol: ("stream_send", "_check_protocol", "_create_stream", "_send_error_response",
                      "_send_h11_event", "_maybe_recycle"),
        HTTPStream: ("_send_error_response",),
        TrioASGIHTTPConnection: ("handle_messages",),
        QuartTrio: ("add_background_task", "add_websocket", "create_url_adapter"),
    }  # fmt: skip
    gone = [
        f"{c.__name__}.{name}" for c, all_ in names.items() for name in all_ if name not in dir(c)
    ]
    if gone:
        raise RuntimeError(
            f"{', '.join(gone)}: gone from the installed hypercorn or quart-trio; daemon.serving "
            "is written for hypercorn 0.18, quart 0.22 and quart-trio 0.12: install those"
        )


class Stream(HTTPStream):
    """One request and its answer; what the application fails to answer is a JSON failure."""

    async def _send_error_response(self, status_code: int) -> None:
        headers, body = _failure(self.app, status_code, self.scope["path"])
        await self.send(Response(self.stream_id, headers=headers, status_code=status_code))
        if not suppress_body(self.scope["method"], status_code):
            await self.send(Body(self.stream_id, data=body))
        await self.send(EndBody(self.stream_id))
        self.state = ASGIHTTPState.CLOSED


class Http1(H11Protocol):
    """HTTP/1.1 and nothing that it can be upgraded to."""

    connection: h11.Connection
    _id = ""  # of the request that is being answered, while there is one
    _bodiless = False  # the answer to a HEAD
    _head = b""  # the beginning of what has not become a request, for how its refusal looks

    async def handle(self, event: Event) -> None:
        """Remember what is asked for: of what is no request, the parser tells nothing."""
        if isinstance(event, RawData) and self.stream is None:
            self._head += event.data[: LONGEST_PATH - len(self._head)]
        await super().handle(event)

    async def stream_send(self, event: StreamEvent) -> None:
        """Say the request's id, and `Connection: close` on the connection's last answer."""
        if isinstance(event, Response):
            added = [header_of(self._id)]
            if self.context.terminated.is_set() or self.connection.their_state is not h11.DONE:
                added.append(CLOSE)
            event = replace(event, headers=[*event.headers, *added])
        elif isinstance(event, StreamClosed):
            self._id = ""
        await super().stream_send(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Guard 1: neither `Upgrade: h2c` nor HTTP/2 by prior knowledge."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Guards 1, 6 and 8: no WebSocket, no odd target, no oversized head."""
        self._bodiless = request.method == b"HEAD"
        self._head = b""
        self._id = request_id(request.headers)
        path = _origin_form(request.target)
        if path is None:
            return await self._refuse(400)
        if _head_size(request) > self.config.h11_max_incomplete_size:
            return await self._refuse(431, path)
        self.stream = Stream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        with working_for((Work(request_id=self._id),)):  # the task of the application takes it over
            await self.stream.handle(
                Request(
                    STREAM_ID,
                    headers=list(request.headers),
                    http_version=request.http_version.decode("ascii"),
                    method=request.method.decode("ascii").upper(),
                    raw_path=path,
                    state=self.connection_state,
                )
            )
        self.keep_alive_requests += 1
        return None

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Guard 10: with the reason phrase, which hypercorn leaves empty."""
        if isinstance(event, h11.Response | h11.InformationalResponse) and not event.reason:
            event = replace(event, reason=_phrase(event.status_code))
        await super()._send_h11_event(event)

    async def _refuse(self, status: int, target: bytes = b"") -> None:
        path = unquote(target.partition(b"?")[0].decode("ascii"))
        await self._send_error_response(status, path)
        await self.send(Closed())

    async def _send_error_response(self, status_code: int, path: str = "") -> None:
        headers, body = _failure(self.app, status_code, path or self._path())
        said = header_of(self._id or request_id(()))
        headers += [said, *self.config.response_headers("h11"), CLOSE]
        await self.send(Updated(idle=False))  # what is no request is answered like one
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        if not self._bodiless:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())

    def _path(self) -> str:
        """Where what is being refused was going, as far as it can be told."""
        if isinstance(self.stream, Stream):
            path: str = self.stream.scope["path"]
            return path
        _, _, target = self._head.partition(b" ")
        return unquote(target.split(b"?")[0].split(b" ")[0].decode("ascii", "replace"))


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

    def give_way(self) -> bool:
        """Close at once when idle; whether it was. The tasks in `run` end by themselves after it.

        What has arrived and was not read yet may be a request, so its sender is not idle. Nobody
        gains time by that: it is read in the same turn of the loop, or in the next. A client that
        has left has nothing to be read: hundreds that leave together make room at once.
        """
        accepted = self.stream.socket
        closed = accepted.fileno() < 0  # by its idle time, just now
        if self.idle_since == inf or (not closed and _unread(accepted.fileno())):
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
            logger.warning("a connection was ended by %s", ", ".join(_places(group)))

    async def _talk(self) -> None:
        try:
            client = _peer(self.stream.socket)
        except OSError:
            return  # gone before we looked
        async with TaskGroup() as tasks:
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
            await super()._read_data()
        with (
            trio.move_on_after(LINGER_SECONDS),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError),
        ):
            while await self.stream.receive_some(MAX_RECV):
                pass

    async def _idle_timeout(self) -> None:
        """Guard 11: at a stop, who was let in and has said nothing yet may still ask once."""
        with trio.move_on_after(self.config.keep_alive_timeout):
            await self.context.terminated.wait()
            await trio.sleep(LAST_CALL_SECONDS)
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
            await self._end()
        elif isinstance(event, Updated):
            self.idle_since = trio.current_time() if event.idle else inf
            await super().protocol_send(event)

    async def _send(self, data: bytes) -> None:
        try:
            async with self.send_lock:
                for start in range(0, len(data), SEND_SLICE):
                    with trio.fail_after(self._send_seconds):
                        await self.stream.send_all(data[start : start + SEND_SLICE])
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


class RequestTask(TrioASGIHTTPConnection):
    """Guard 2: a disconnect cancels the handler, but not the return of a finished connection.

    A client that has sent more than its one request is seen to leave only when the answer is
    written: the server reads no further until then. Handlers have deadlines of their own anyway.
    """

    _answered = False

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def noting(message: ASGISendEvent) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._answered = True
            await send(message)

        await super().__call__(receive, noting)

    async def handle_messages(  # type: ignore[override]  # quart-trio itself adds the nursery
        self, nursery: trio.Nursery, request: QuartRequest, receive: ASGIReceiveCallable
    ) -> None:
        await super(TrioASGIHTTPConnection, self).handle_messages(request, receive)
        if not self._answered:
            nursery.cancel_scope.cancel()


class GuardedQuart(QuartTrio):
    """Quart-Trio without the parts that cannot be relied on. Serve it with `serve`.

    `failure_body` is how it tells the failures that its own handlers never see. `stopping` is set
    when the server that serves it begins to stop: an answer without an end ends itself then.
    """

    asgi_http_class = RequestTask

    def __init__(self, *, max_body: int = MAX_BODY, failure_body: FailureBody = plain_body) -> None:
        super().__init__(__name__, static_folder=None)
        self.failure_body = failure_body
        self.stopping = trio.Event()
        self.config["MAX_CONTENT_LENGTH"] = max_body
        self.config["BODY_TIMEOUT"] = BODY_SECONDS
        self.config["RESPONSE_TIMEOUT"] = RESPONSE_SECONDS
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        self.url_map.merge_slashes = False  # its redirect is an HTML page, and loses a POST's body

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Guard 1: no route depends on the host, so one that is no host name is no error here."""
        try:
            return super().create_url_adapter(request)
        except BadHost:
            bad = cast(BaseRequestWebsocket, request)  # without one there is no host to be bad
            query = bad.query_string.decode("ascii")
            return self.url_map.bind("", bad.root_path, "", bad.scheme, bad.method, bad.path, query)

    def add_websocket(self, rule: str, *_: Any, **__: Any) -> NoReturn:
        """Guard 8."""
        raise TypeError(f"{rule}: no WebSocket is served here; use server-sent events")

    def add_background_task(self, func: Callable[..., Any], *_: Any, **__: Any) -> NoReturn:
        """Guard 5."""
        raise TypeError(f"{func!r}: its errors would go unseen; start it under the supervisor")


def _failure(
    wrapped: AppWrapper, status: int, path: str
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    app = cast(GuardedQuart, cast(ASGIWrapper, wrapped).app)
    return failure(app.failure_body, status, path)


def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode("ascii")


def _origin_form(target: bytes) -> bytes | None:
    """The target as a path with its query, or None (RFC 9112, section 3.2)."""
    path = _ABSOLUTE_FORM.sub(b"", target, count=1)
    return path if path.startswith(b"/") else None


def _head_size(request: h11.Request) -> int:
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in request.headers)
    return len(request.method) + len(request.target) + fields


def _peer(accepted: trio.socket.SocketType) -> tuple[str, int]:
    """The client's address; that of an IPv4 client of an IPv6 socket in its own form."""
    host, port = accepted.getpeername()[:2]
    return host.removeprefix(_IPV4_IN_IPV6), port


def _unread(descriptor: int) -> int:
    """Bytes that have arrived at a socket and were not read."""
    waiting = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(struct.calcsize("i")))
    return int(struct.unpack("i", waiting)[0])


def _places(group: BaseExceptionGroup[Any]) -> list[str]:
    places = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            places += _places(error)
        else:
            last = traceback.extract_tb(error.__traceback__)[-1]
            places.append(f"{type(error).__name__} at {last.filename}:{last.lineno}")
    return places
