"""Quart-Trio, without the parts of it that cannot be relied on.

Each guard is an override, as in `http1.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from math import inf
from typing import Any, NoReturn, TypeVar, cast

import trio
from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    HTTPResponseStartEvent,
)
from quart import Quart
from quart import request as current
from quart.routing import QuartRule
from quart.sessions import NullSession, SessionInterface, SessionMixin
from quart.typing import ResponseTypes
from quart.utils import encode_headers
from quart.wrappers.base import BaseRequestWebsocket
from quart.wrappers.response import DataBody
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from quart_trio.wrappers import TrioRequest
from werkzeug.routing import MapAdapter

from smartlinkd.serving.failures import FailureBody, plain_body
from smartlinkd.serving.places import Places

T = TypeVar("T")

MAX_BODY = 1024 * 1024  # bytes of a request's body, as the clients were promised
BODY_SECONDS = 30  # for the whole body: 1 MiB at 35 KB/s
RESPONSE_SECONDS = 60  # for sending one answer; an event stream sets its own `timeout = None`
RESPONSE_PACE = 64 * 1024  # bytes of it for which there is one second more
CONNECTIONS = 512  # of one server, unless its `Limits` say otherwise


class Messages:
    """What the server tells a request's task: parts of its body, and that the client has left.

    ASGI's `receive`, without what it needs to be one: whoever is told takes each message where it
    comes from, so no queue, and no task that empties one, is between the two.
    """

    def __init__(self) -> None:
        self._waiting: list[ASGIReceiveEvent] = []
        self._take: Callable[[ASGIReceiveEvent], None] = self._waiting.append

    async def __call__(self) -> NoReturn:
        raise TypeError("this is not to be asked for messages, but given somebody who takes them")

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Tell it. No checkpoint: all that has arrived is told before the task answers, since a
        connection is only used again by who knows where its next request begins."""
        self._take(message)

    def give_to(self, take: Callable[[ASGIReceiveEvent], None]) -> None:
        """From now on, and what has come until now."""
        self._take = take
        for message in self._waiting:
            take(message)
        self._waiting.clear()

    def forget(self) -> None:
        """Nobody takes any more. Who did holds the request, and by way of its connection this: in
        a circle all of it, with the body, would stay until the collector comes by."""
        self._take = _lose


def _lose(_message: ASGIReceiveEvent) -> None:
    """It comes too late."""


class RequestTask(TrioASGIHTTPConnection):
    """Guard 2: a disconnect cancels the handler, but not the return of a finished connection.

    A client that has sent more than its one request is seen to leave only when the answer is
    written: the server reads no further until then. Handlers have deadlines of their own anyway.

    And faster: one task in the place of three, and none to be cancelled with each request.
    """

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if not isinstance(receive, Messages):  # Quart's own test client, say
            return await super().__call__(receive, send)
        answered = False

        async def noting(message: ASGISendEvent) -> None:
            nonlocal answered
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered = True
            await send(message)

        def take(message: ASGIReceiveEvent) -> None:
            if message["type"] == "http.request":
                request.body.append(message["body"])
                if not message["more_body"]:
                    request.has_whole_body = True
                    request.body.set_complete()
            elif not answered:
                life.cancel()

        request = cast(Request, self._create_request_from_scope(noting))
        try:
            with trio.CancelScope() as life:
                receive.give_to(take)
                response = await self.app.handle_request(request)
                limit = getattr(response, "timeout", ...)  # a handler's own, `None` for none at all
                if limit is ...:
                    limit = RESPONSE_SECONDS + (response.content_length or 0) / RESPONSE_PACE
                with trio.move_on_after(inf if limit is None else limit):
                    await self._send_response(noting, response)
        finally:
            receive.forget()
            request.held.close()
        return None

    async def _send_response(self, send: ASGISendCallable, response: ResponseTypes) -> None:
        """Faster: a body that is there as a whole is one message, and the answer's last."""
        body = response.response
        if not isinstance(body, DataBody):
            return await super()._send_response(send, response)
        start: HTTPResponseStartEvent = {
            "type": "http.response.start",
            "status": response.status_code,
            "headers": encode_headers(response.headers),
            "trailers": False,
        }
        await send(start)
        await send({"type": "http.response.body", "body": body.data, "more_body": False})
        return None


class Route(QuartRule):
    """A rule that can do without HEAD, which Werkzeug serves wherever GET is.

    It makes addresses only when it is asked for one: Werkzeug compiles two functions for that with
    each rule, which takes eight times as long as all else about it, and nobody asks.
    """

    def __init__(self, string: str, *, head: bool = True, **options: Any) -> None:
        super().__init__(string, **options)
        if not head and self.methods is not None:
            self.methods.discard("HEAD")

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_builder = super()._compile_builder

        def build(rule: Route, **values: Any) -> tuple[str, str]:
            return compile_builder(append_unknown)(rule, **values)

        return build


class Request(TrioRequest):
    """A request to an app without blueprints, which Quart looks for four times with each."""

    blueprints: Sequence[str] = ()  # type: ignore[assignment]  # a property that computes it

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.has_whole_body = False
        self.held = ExitStack()


def has_whole_body() -> bool:
    """Return True if the current request's body has arrived to its end."""
    return cast(Request, current).has_whole_body


def hold_until_answered(held: AbstractContextManager[T]) -> T:
    """Enter `held`, and leave it when the current request's task ends, whatever ends it.

    Use it for what the answer's own sending needs, which begins after the handler has returned.
    """
    return cast(Request, current).held.enter_context(held)


class NoSessions(SessionInterface):
    """There are no sessions in Quart's sense, nor cookies for them."""

    _none = NullSession()

    async def open_session(self, _app: Quart, _request: BaseRequestWebsocket) -> SessionMixin:
        return self._none


class GuardedQuart(QuartTrio):
    """Quart-Trio without the parts that cannot be relied on. Serve it with `serve`.

    `failure_body` is how it tells the failures that its own handlers never see. `stopping` is set
    when the server that serves it begins to stop: an answer without an end ends itself then.
    `places` bounds what clients may hold for long at that server.
    """

    asgi_http_class = RequestTask
    request_class = Request
    session_interface = NoSessions()  # type: ignore[assignment]  # Quart itself names its own
    url_rule_class = Route  # type: ignore[assignment]  # as QuartRule itself is

    def __init__(self, *, max_body: int = MAX_BODY, failure_body: FailureBody = plain_body) -> None:
        super().__init__(__name__, static_folder=None)
        self.failure_body = failure_body
        self.stopping = trio.Event()
        self.places = Places(CONNECTIONS)
        self.config["MAX_CONTENT_LENGTH"] = max_body
        self.config["BODY_TIMEOUT"] = BODY_SECONDS
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        self.url_map.merge_slashes = False  # its redirect is an HTML page, and loses a POST's body

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Guard 1: no route depends on the host, so one that is no host name is no error here."""
        if request is None:
            return None
        return self.url_map.bind(
            "",
            script_name=request.root_path,
            url_scheme=request.scheme,
            default_method=request.method,
            path_info=request.path,
            query_args=request.query_string.decode("ascii"),
        )

    def add_websocket(self, rule: str, *_: Any, **__: Any) -> NoReturn:
        """Guard 8."""
        raise TypeError(f"{rule}: no WebSocket is served here; use server-sent events")

    def add_background_task(self, func: Callable[..., Any], *_: Any, **__: Any) -> NoReturn:
        """Guard 5."""
        raise TypeError(f"{func!r}: its errors would go unseen; start it under the supervisor")
