"""`/mcp` of the daemon: Streamable HTTP without sessions, for API keys alone.

The SDK's transport is an ASGI app. Its requests run in tasks of the actor `mcp`, and end with their
HTTP request. A tool calls the daemon's own app inside the process, with the key that was sent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any, Final, cast

import httpx
import trio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from quart import Response, request

from smartlinkd.api.auth_guards import Guards
from smartlinkd.api.services import Services
from smartlinkd.errors import Unavailable
from smartlinkd.http_server import GuardedQuart, has_whole_body, hold_until_answered
from smartlinkd.http_server.app import Messages
from smartlinkd.mcp.tools import CALL_S, Context, ToolApi, make_server
from smartlinkd.supervision.calls import actor_deadline

PATH: Final = "/mcp"
RETRY_S: Final = 1
_API: Final = "smartlinkd.api"
"""The ASGI scope's key of the API that a request's tools call."""

Message = MutableMapping[str, Any]


class McpActor:
    """Runs the SDK's transport. Requests get 503 while it restarts."""

    def __init__(self) -> None:
        self._start: Callable[..., None] | None = None  # of a request's task; None while down

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run as one instance."""
        manager = StreamableHTTPSessionManager(
            make_server(_api_of),
            stateless=True,
            # A key is needed, and no web page has one: the name in `Host` opens nothing.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        try:
            async with manager.run(), trio.open_nursery() as nursery:
                self._start = lambda *request: nursery.start_soon(_run, manager, *request)
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._start = None

    def add_to(self, app: GuardedQuart, services: Services) -> None:
        """Serve `PATH` in an app. Only POST: without sessions there is nothing to GET or DELETE."""
        guards = Guards(services)

        async def mcp() -> Response:
            with actor_deadline():
                await guards.any_key.admit()
            credential = await guards.credential()
            token = credential.key or ""
            if has_whole_body():
                body = await request.get_data()
            else:
                with app.places.receive(token, is_token=True):
                    body = await request.get_data()
            assert isinstance(body, bytes)  # noqa: S101 - for the type checker: no text is asked for
            hold_until_answered(app.places.follow(token))
            http = httpx.AsyncClient(
                transport=_in_process(app, credential.address),
                base_url="http://127.0.0.1",
                headers={"Authorization": f"Bearer {token}"},
            )
            return await self._answer(ToolApi(http, app.stopping), body)

        app.add_url_rule(PATH, "mcp", mcp, methods=["POST"], provide_automatic_options=False)

    async def _answer(self, api: ToolApi, body: bytes) -> Response:
        """Pass the current request to the transport, and return its answer while it comes.

        Raises:
            Unavailable: the transport is down, or ended without an answer.
        """
        if self._start is None:
            raise Unavailable("MCP is being started; try again", retry_after=RETRY_S)
        send, receive = trio.open_memory_channel[Message](0)
        scope = {
            "type": "http",
            "method": "POST",
            "path": PATH,
            "query_string": b"",
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in request.headers.items()
            ],
            _API: api,
        }
        cancel = trio.CancelScope()
        # Called when the request's task ends, whatever ends it.
        hold_until_answered(ExitStack()).callback(cancel.cancel)
        self._start(scope, body, send, cancel)
        try:
            start = await receive.receive()
        except trio.EndOfChannel:
            raise Unavailable("MCP was stopped meanwhile; try again", retry_after=RETRY_S) from None
        response = Response(_parts(receive), status=start["status"])
        response.headers.clear()
        for name, value in start["headers"]:
            response.headers.add(name.decode("latin-1"), value.decode("latin-1"))
        response.timeout = CALL_S
        return response


def _in_process(app: GuardedQuart, address: str) -> httpx.ASGITransport:
    """Return a transport to an app of this process, on behalf of a client at `address`."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        # With its whole body, the request takes no place among those that are waited for.
        messages, is_whole = Messages(), False
        while not is_whole:
            message = await receive()
            await messages.put(message)
            is_whole = not message["more_body"]
        await app(scope, cast(Any, messages), send)

    return httpx.ASGITransport(answer, client=(address, 0))


async def _run(
    manager: StreamableHTTPSessionManager,
    scope: dict[str, Any],
    body: bytes,
    send: trio.MemorySendChannel[Message],
    cancel: trio.CancelScope,
) -> None:
    """Run one request in the transport until it is answered or cancelled."""
    parts = [body]

    async def receive() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await trio.sleep_forever()
        raise AssertionError

    async with send:
        with cancel, trio.move_on_after(CALL_S):
            await manager.handle_request(scope, receive, send.send)


async def _parts(receive: trio.MemoryReceiveChannel[Message]) -> AsyncIterator[bytes]:
    """Yield the body's parts, as the transport sends them."""
    async for message in receive:
        yield message.get("body", b"")


def _api_of(context: Context) -> ToolApi:
    request_of_sdk: Any = context.request  # Starlette's
    api: ToolApi = request_of_sdk.scope[_API]
    return api
