"""Quart-Trio, without the parts of it that cannot be relied on.

Each guard is an override, as in `http1.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from quart.routing import QuartRule
from quart.wrappers import Request as QuartRequest
from quart.wrappers.base import BaseRequestWebsocket
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import BadHost
from werkzeug.routing import MapAdapter

from daemon.serving.failures import FailureBody, plain_body

MAX_BODY = 1024 * 1024  # bytes of a request's body, as the clients were promised
BODY_SECONDS = 30  # for the whole body: 1 MiB at 35 KB/s
RESPONSE_SECONDS = 60  # for sending one answer; an event stream sets its own `timeout = None`


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


class Route(QuartRule):
    """A rule that makes addresses only when it is asked for one.

    Werkzeug compiles two functions for that with each rule, which takes eight times as long as all
    else about it, and nobody asks.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compile_builder = super()._compile_builder

        def build(rule: Route, **values: Any) -> tuple[str, str]:
            return compile_builder(append_unknown)(rule, **values)

        return build


class GuardedQuart(QuartTrio):
    """Quart-Trio without the parts that cannot be relied on. Serve it with `serve`.

    `failure_body` is how it tells the failures that its own handlers never see. `stopping` is set
    when the server that serves it begins to stop: an answer without an end ends itself then.
    """

    asgi_http_class = RequestTask
    url_rule_class = Route  # type: ignore[assignment]  # as QuartRule itself is

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
