"""Answers that are wrong: a fault played over the wire.

Where JSON was due, `spoilt` sends something else, or sends it late, or half of it. A reset is a
real one: the connection is found among the process's own descriptors by its two addresses and
closed with a zero linger, because no layer above (ASGI has no word for it) can end a response
without either completing it or raising inside the server.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from quart import Response, request

from smartlinkd.sandbox.faults import Play
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.web import as_json

HUMAN_CHECK_ERROR = 90309999
RETRY_AFTER = 30
"""Seconds, in the 429 answer."""


def graphql_errors(message: str, code: int) -> dict[str, Any]:
    """GraphQL's own way to say that a whole call failed; the status is 200."""
    return {
        "errors": [{"message": message, "extensions": {"code": code, "message": message}}],
        "data": None,
    }


_LOGIN_HTML = (
    "<!doctype html><html lang=vi><meta charset=utf-8><title>Đăng nhập</title>"
    "<form><input name=loginKey><input type=password name=password></form></html>"
)
_LOGGED_OUT: dict[str, Any] = {
    "is_customized": False,
    "is_login": False,
    "platform": 0,
    "action_type": 2,
    "error": HUMAN_CHECK_ERROR,
    "tracking_id": "sandbox",
}

_INSTEAD: dict[Play, tuple[int, dict[str, Any]]] = {
    Play.REFUSED_401: (401, {"code": 401, "msg": "unauthorized", **_LOGGED_OUT, "error": 401}),
    Play.REFUSED_403: (403, {"code": 403, "msg": "forbidden", "data": None}),
    Play.BUSY_429: (429, {"code": 429, "msg": "too many requests", "data": None}),
    Play.BROKEN_500: (500, {"code": 500, "msg": "internal error", "data": None}),
    Play.LOGGED_OUT: (200, _LOGGED_OUT),
    Play.LOGGED_OUT_NUMERIC: (
        200,
        {"1": False, "2": False, "3": 0, "4": 2, "5": HUMAN_CHECK_ERROR, "6": "sandbox"},
    ),
    Play.CHECK_IN_JSON: (403, _LOGGED_OUT | {"is_login": True}),
    Play.HUMAN_CHECK: (200, _LOGGED_OUT | {"is_login": True}),
    Play.HUMAN_CHECK_BARE: (200, {"error": HUMAN_CHECK_ERROR, "tracking_id": "sandbox"}),
    Play.NULL: (200, {"code": 0, "msg": "success", "data": None}),
    Play.GRAPHQL_ERROR: (200, graphql_errors("sandbox: refused", 90000)),
    Play.FROZEN: (
        200,
        {"code": 10033, "msg": "account is frozen", **graphql_errors("account is frozen", 10033)},
    ),
}


_REDIRECTS = {Play.TO_LOGIN: "/buyer/login", Play.CAPTCHA: "/verify/captcha"}


async def spoilt(play: Play, state: State, good: Any) -> Response:
    """The answer to a call for which `good` was due, with `play` on it."""
    if instead := _instead(play, state):
        return instead
    if play is Play.RESET:
        return await reset(state)
    text = json.dumps(good)
    if play is Play.TRUNCATED:
        return Response(text[: len(text) // 2], content_type="application/json")
    if play is Play.CUT:
        return _cut(text.encode(), state)
    if play is Play.SLOW:
        await state.hold_back()
    return as_json(good)


def _instead(play: Play, state: State) -> Response | None:
    """A whole answer that is not the one that was due, for the plays that are one."""
    if play in _REDIRECTS:
        return Response("", status=302, headers={"Location": state.origins.shop + _REDIRECTS[play]})
    if play is Play.HTML:
        return Response(_LOGIN_HTML, content_type="text/html; charset=utf-8")
    if play not in _INSTEAD:
        return None
    status, body = _INSTEAD[play]
    headers = {"Retry-After": str(RETRY_AFTER)} if play is Play.BUSY_429 else {}
    return as_json(body, status=status, headers=headers)


async def reset(state: State) -> Response:
    """Reset the connection of the current request; what is returned reaches nobody."""
    _sever(*_addresses())
    await state.hold_back()  # until the server has seen it and cancels this request
    return Response("")


def endless(head: str, state: State) -> Response:
    """A page of which `head` arrives and the rest does not."""

    async def body() -> AsyncIterator[bytes]:
        yield head.encode()
        await state.hold_back()

    response = Response(body(), content_type="text/html; charset=utf-8")
    response.timeout = None
    return response


def _cut(text: bytes, state: State) -> Response:
    addresses = _addresses()

    async def body() -> AsyncIterator[bytes]:
        yield text[: len(text) // 2]
        _sever(*addresses)
        await state.hold_back()

    response = Response(body(), content_type="application/json")
    response.timeout = None
    return response


Address = tuple[str, int]


def _addresses() -> tuple[Address, Address]:
    """(ours, the client's) of the connection of the current request."""
    scope: dict[str, Any] = dict(request.scope)
    return scope["server"], scope["client"]


def _sever(here: Address, there: Address) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths, are wanted
        with suppress(OSError):  # closed since it was listed, or of another family: not the one
            # Looked at first: the duplicate that `fromfd` makes of what is no socket is never
            # closed, and keeps a pipe open that somebody waits for the end of.
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM) as connection:
                if (connection.getsockname(), connection.getpeername()) == (here, there):
                    no_linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
                    connection.shutdown(socket.SHUT_RD)
                    return
