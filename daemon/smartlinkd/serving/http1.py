"""One connection's HTTP/1.1: requests in, answers out, and what of it is refused.

Each guard is an override, so that taking it out of its class gives the upstream behaviour back:
the tests do that. What each is for: the package's head.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import h11
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.typing import AppWrapper, H11SendableEvent
from hypercorn.utils import suppress_body

from smartlinkd.logs import LogContext, bind_log_contexts
from smartlinkd.serving.app import GuardedQuart
from smartlinkd.serving.failures import failure
from smartlinkd.serving.ids import header_of, request_id

LONGEST_PATH = 4096  # bytes of a request's first line that are looked at when it is refused
CLOSE = (b"connection", b"close")

Headers = list[tuple[bytes, bytes]]

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
    _id = ""  # of the request that is being answered, while there is one
    _bodiless = False  # the answer to a HEAD
    _head = b""  # the beginning of what has not become a request, for how its refusal looks
    _held = b""  # the head of an answer whose body is on its way
    _refusing = (
        False  # what came is no request to the end, and we answer in the application's place
    )

    async def handle(self, event: Event) -> None:
        """Remember what is asked for: of what is no request, the parser tells nothing."""
        if isinstance(event, RawData) and self.stream is None:
            self._head += event.data[: LONGEST_PATH - len(self._head)]
        await super().handle(event)

    async def stream_send(self, event: StreamEvent) -> None:
        """Say the request's id, and `Connection: close` on the connection's last answer.

        Guard 10: with the reason phrase, which hypercorn leaves empty. An application that answers
        without its body while that is being refused would end the connection before we have.
        """
        if self._refusing:
            return
        if isinstance(event, Response):
            await self._send_h11_event(self._head_of(event))
            return
        if isinstance(event, StreamClosed):
            self._id, self._bodiless = "", False
            # The next request may have come with this one, and is no news then.
            self._head = self.connection.trailing_data[0][:LONGEST_PATH]
        await super().stream_send(event)

    def _head_of(self, answer: Response) -> h11.Response:
        headers = [*answer.headers, *self.config.response_headers("h11"), header_of(self._id)]
        is_last = (
            self.keep_alive_requests >= self.config.keep_alive_max_requests
            or self.context.terminated.is_set()
            or self.connection.their_state is not h11.DONE
        )
        if is_last:
            headers.append(CLOSE)
        return _response(answer.status_code, headers)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Guard 1: neither `Upgrade: h2c` nor HTTP/2 by prior knowledge."""

    async def _create_stream(self, request: h11.Request) -> None:
        """Guards 1, 6, 8, 12: no WebSocket, odd target, oversized head or body of doubtful end."""
        headers = list(request.headers)
        self._bodiless = request.method == b"HEAD"
        self._head = b""
        self._id = request_id(headers)
        path = _origin_form(request.target)
        if path is None:
            return await self._refuse(400)
        if _head_size(request, headers) > self.config.h11_max_incomplete_size:
            return await self._refuse(431, path)
        if not _ends_surely(request, headers):
            return await self._refuse(400, path)
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
        with bind_log_contexts(
            (LogContext(request_id=self._id),)
        ):  # the task of the application takes it over
            await self.stream.handle(
                Request(
                    STREAM_ID,
                    headers=headers,
                    http_version=request.http_version.decode("ascii"),
                    # As it came: to h11 "head" is no HEAD, and its answer has to have a body.
                    method=request.method.decode("ascii"),
                    raw_path=path,
                    state=self.connection_state,
                )
            )
        self.keep_alive_requests += 1
        return None

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        """Faster: a head that says its body's length goes out with the first of the body, in one
        write in the place of three. One of a stream goes at once: its first event may take long.
        """
        try:
            said = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        self._held += said or b""
        if isinstance(event, h11.Response) and _says_length(event):
            return
        data, self._held = self._held, b""
        if data:
            await self.send(RawData(data))

    async def _refuse(self, status: int, target: bytes = b"") -> None:
        path = unquote(target.partition(b"?")[0].decode("ascii"))
        await self._send_error_response(status, path)
        await self.send(Closed())

    async def _send_error_response(self, status_code: int, path: str = "") -> None:
        self._refusing = True
        headers, body = _failure(self.app, status_code, path or self._path())
        said = header_of(self._id or request_id(()))
        headers += [said, *self.config.response_headers("h11"), CLOSE]
        await self.send(Updated(idle=False))  # what is no request is answered like one
        await self._send_h11_event(_response(status_code, headers))
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


def _failure(
    wrapped: AppWrapper, status: int, path: str
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    app = cast(GuardedQuart, cast(ASGIWrapper, wrapped).app)
    return failure(app.failure_body, status, path)


def _says_length(event: h11.Response) -> bool:
    return any(name == b"content-length" for name, _ in event.headers)


def _response(status: int, headers: Headers) -> h11.Response:
    phrase = HTTPStatus(status).phrase
    return h11.Response(status_code=status, reason=phrase, headers=headers)


def _origin_form(target: bytes) -> bytes | None:
    """The target as a path with its query, or None (RFC 9112, section 3.2)."""
    scheme_and_host = _ABSOLUTE_FORM.match(target)  # in its midst it is part of a path, or a query
    path = target[scheme_and_host.end() :] if scheme_and_host else target
    return path if path.startswith(b"/") else None


def _head_size(request: h11.Request, headers: Headers) -> int:
    fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in headers)
    return len(request.method) + len(request.target) + fields


def _ends_surely(request: h11.Request, headers: Headers) -> bool:
    """Whether all who read it see the same end of its body (RFC 9112, section 6.1)."""
    names = {name for name, _ in headers}
    if b"transfer-encoding" not in names:
        return True
    return b"content-length" not in names and request.http_version >= b"1.1"
