"""The Quart-Trio app, without the parts of it that cannot be relied on.

Each guard is an override: without it the app behaves as upstream does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import inf
from typing import Any, NoReturn, TypeVar, cast

import trio
from hypercorn.typing import (
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
)
from quart import request as current
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from quart_trio.wrappers import TrioRequest
from werkzeug.routing import MapAdapter

from smartlinkd.http_server.failures import FailureBody, plain_body
from smartlinkd.http_server.places import DEFAULT_LIMITS, Places

T = TypeVar("T")

MAX_BODY = 1024 * 1024  # bytes of a request's body, as the clients were promised
BODY_SECONDS = 30  # for the whole body: 1 MiB at 35 KB/s
RESPONSE_SECONDS = 60  # for sending one answer; a handler may set another `timeout` on its response
RESPONSE_PACE = 64 * 1024  # bytes of the answer for which there is one second more


class Messages:
    """The messages of one request: the parts of its body, and the disconnect.

    It stands for ASGI's `receive`, and calls a listener in place of being asked, so that no queue
    and no task is in between. Putting a message in is no checkpoint: all that was read of a request
    is known before it is answered. Else its answer would be taken for the last of its connection.
    """

    def __init__(self) -> None:
        self._waiting: list[ASGIReceiveEvent] = []
        self._listener: Callable[[ASGIReceiveEvent], None] = self._waiting.append

    async def __call__(self) -> NoReturn:
        raise TypeError("this is not to be asked for messages; give it a listener")

    async def put(self, message: ASGIReceiveEvent) -> None:
        """Pass a message to the listener, or keep it until there is one."""
        self._listener(message)

    @contextmanager
    def pass_to(self, listener: Callable[[ASGIReceiveEvent], None]) -> Iterator[None]:
        """Pass all messages to `listener` for the length of the block, and later ones to nobody."""
        self._listener = listener
        for message in self._waiting:
            listener(message)
        self._waiting.clear()
        try:
            yield
        finally:
            # The listener holds the request, which would stay in a circle with its body.
            self._listener = lambda _message: None


class Request(TrioRequest):
    """A request that can hold something until its answer is sent."""

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


class RequestTask(TrioASGIHTTPConnection):
    """One request: a disconnect cancels its handler, but not the return of its connection.

    hypercorn reports a disconnect after every answer as well.
    """

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if not isinstance(receive, Messages):  # Quart's own test client
            return await super().__call__(receive, send)
        is_answered = False

        async def send_and_note(message: ASGISendEvent) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                is_answered = True
            await send(message)

        def handle(message: ASGIReceiveEvent) -> None:
            if message["type"] == "http.request":
                request.body.append(message["body"])
                if not message["more_body"]:
                    request.has_whole_body = True
                    request.body.set_complete()
            elif not is_answered:
                scope.cancel()

        request = cast(Request, self._create_request_from_scope(send_and_note))
        with request.held, trio.CancelScope() as scope, receive.pass_to(handle):
            response = await self.app.handle_request(request)
            limit = getattr(response, "timeout", ...)  # a handler's own, None for none at all
            if limit is ...:
                limit = RESPONSE_SECONDS + (response.content_length or 0) / RESPONSE_PACE
            with trio.move_on_after(inf if limit is None else limit):
                await self._send_response(send_and_note, response)
        return None


class GuardedQuart(QuartTrio):
    """Quart-Trio without the parts that cannot be relied on. Serve it with `serve`.

    `failure_body` makes the body of every failure. `serve` replaces
    `stopping` and `places`: the first is set when the server begins to stop, so that an answer
    without an end can end itself; the second bounds what clients may hold for long.
    """

    asgi_http_class = RequestTask
    request_class = Request

    def __init__(self, *, max_body: int = MAX_BODY, failure_body: FailureBody = plain_body) -> None:
        super().__init__(__name__, static_folder=None)
        self.failure_body = failure_body
        self.stopping = trio.Event()
        self.places = Places(DEFAULT_LIMITS.connections)
        self.config["MAX_CONTENT_LENGTH"] = max_body
        self.config["BODY_TIMEOUT"] = BODY_SECONDS
        self.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
        self.url_map.merge_slashes = False  # its redirect is an HTML page, and loses a POST's body

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Bind the routes without the host, so that a `Host` that is no host name is no error."""
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
