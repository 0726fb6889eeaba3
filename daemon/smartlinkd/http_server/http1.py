"""One connection's HTTP/1.1: strict about requests, and every refusal is in JSON.

Each guard overrides a method of hypercorn's `H11Protocol` (docs/decisions/075-http-server.md).
A request's id is in its answer, and on each log line that is written for it. A client, or a proxy
in front, may send one as `X-Request-Id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, cast

import h11
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import AppWrapper, H11SendableEvent
from hypercorn.utils import suppress_body

from smartlinkd.http_server.app import GuardedQuart
from smartlinkd.http_server.failures import Headers, failure
from smartlinkd.logs import LogContext, bind_log_contexts, new_request_id

CLOSE = (b"connection", b"close")

REQUEST_ID_HEADER: Final = "X-Request-Id"
LONGEST_REQUEST_ID: Final = 64
"""Characters. UUIDs, trace ids and the ids of load balancers are shorter, session tokens longer."""

_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._~:+/=@-]{1,%d}" % LONGEST_REQUEST_ID)
_ID_FIELD: Final = REQUEST_ID_HEADER.lower().encode()

_ABSOLUTE_FORM = re.compile(rb"https?://[^/?#]*(?=/)", re.IGNORECASE)


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
    _request_id = ""  # of the request that is being answered, while there is one
    _is_head_request = False
    _unsent_head = b""  # of an answer whose body is on its way
    _is_refusing = False  # this protocol answers, in place of the application

    async def stream_send(self, event: StreamEvent) -> None:
        """Send an event of the answer; its head with our headers and a reason phrase."""
        if self._is_refusing:
            return  # an application that answers without the body would end the connection first
        if isinstance(event, Response):
            await self._send_h11_event(self._response_head(event))
            return
        if isinstance(event, StreamClosed):
            self._request_id, self._is_head_request = "", False
        await super().stream_send(event)

    def _response_head(self, answer: Response) -> h11.Response:
        own = [request_id_header(self._request_id), *self.config.response_headers("h11")]
        is_last = (
            self.keep_alive_requests >= self.config.keep_alive_max_requests
            or self.context.terminated.is_set()
            or self.connection.their_state is not h11.DONE
        )
        return _response(answer.status_code, [*answer.headers, *own, *([CLOSE] if is_last else [])])

    async def _check_protocol(self, event: h11.Request) -> None:
        """Take up neither `Upgrade: h2c` nor HTTP/2 by prior knowledge."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Begin a request. It is never a WebSocket.

        Refuse a target that is no path, a head that is too large (h11 misses one that arrives at
        once), and a body whose end is in doubt.
        """
        headers = list(request.headers)
        self._is_head_request = request.method == b"HEAD"
        self._request_id = request_id(headers)
        path = _origin_form(request.target)
        if path is None or not _has_clear_end(request, headers):
            return await self._refuse(400)
        if _head_size(request, headers) > self.config.h11_max_incomplete_size:
            return await self._refuse(431)
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
        event = Request(
            STREAM_ID,
            headers=headers,
            http_version=request.http_version.decode("ascii"),
            # As it came: to h11 "head" is no HEAD, and its answer has to have a body.
            method=request.method.decode("ascii"),
            raw_path=path,
            state=self.connection_state,
        )
        with bind_log_contexts((LogContext(request_id=self._request_id),)):
            await self.stream.handle(event)  # starts the application's task, which inherits them
        self.keep_alive_requests += 1
        return None

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Send a head together with the body, if it says the body's length.

        One write in place of two: docs/decisions/076-http-server-speed.md. The head of a
        stream goes out at once: its first event may take long.
        """
        try:
            data = self._unsent_head + (self.connection.send(event) or b"")
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response) and b"content-length" in dict(event.headers):
            self._unsent_head = data
            return
        self._unsent_head = b""
        if data:
            await self.send(RawData(data))

    async def _refuse(self, status: int) -> None:
        await self._send_error_response(status)
        await self.send(Closed())

    async def _send_error_response(self, status_code: int) -> None:
        self._is_refusing = True
        headers, body = _failure(self.app, status_code)
        said = request_id_header(self._request_id or request_id(()))
        headers += [said, *self.config.response_headers("h11"), CLOSE]
        await self.send(Updated(idle=False))  # what is no request is answered like one
        await self._send_h11_event(_response(status_code, headers))
        if not self._is_head_request:
            await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())


def _failure(wrapped: AppWrapper, status: int, path: str | None = None) -> tuple[Headers, bytes]:
    app = cast(GuardedQuart, wrapped.app)  # type: ignore[attr-defined]  # ours is a `ServedApp`
    return failure(app.failure_body, status, path)


def _response(status: int, headers: Headers) -> h11.Response:
    # hypercorn leaves the phrase empty, and some clients show nothing else of a refusal.
    phrase = HTTPStatus(status).phrase
    return h11.Response(status_code=status, reason=phrase, headers=headers)


def _origin_form(target: bytes) -> bytes | None:
    """Return the target as a path with its query, or None (RFC 9112, section 3.2)."""
    scheme_and_host = _ABSOLUTE_FORM.match(target)  # in its midst it is part of a path, or a query
    path = target[scheme_and_host.end() :] if scheme_and_host else target
    return path if path.startswith(b"/") else None


def _head_size(request: h11.Request, headers: Headers) -> int:
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in headers)
    return len(request.method) + len(request.target) + fields


def _has_clear_end(request: h11.Request, headers: Headers) -> bool:
    """Return True if all who read it see the same end of its body (RFC 9112, section 6.1)."""
    names = {name for name, _ in headers}
    if b"transfer-encoding" not in names:
        return True
    return b"content-length" not in names and request.http_version >= b"1.1"


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id that a request came with, or a new one.

    It is new when the request has none, several, or one that does not look like an id: others could
    write into our log whatever they like. Header names are in lower case.
    """
    given = [value for name, value in headers if name == _ID_FIELD]
    if len(given) == 1 and _SANE_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return new_request_id()


def request_id_header(an_id: str) -> tuple[bytes, bytes]:
    """Return the header that carries the id."""
    return _ID_FIELD, an_id.encode("ascii")
