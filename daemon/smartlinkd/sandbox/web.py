"""The sandbox's apps: how they are made, how they answer, and how they answer wrongly.

Every app reads the cookies of its own requests: a browser sends them to all three listeners, since
cookies have hosts and no ports.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from mimetypes import guess_type
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from quart import Response, render_template, request
from werkzeug.exceptions import NotFound

from smartlinkd.errors import Invalid
from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.products import format_dong
from smartlinkd.sandbox.session import account_of
from smartlinkd.sandbox.state import Address, SandboxState
from smartlinkd.validation import describe_errors

M = TypeVar("M", bound=BaseModel)

PAGES = Path(__file__).parent / "pages"
HTML = "text/html; charset=utf-8"
HUMAN_CHECK_ERROR = 90309999
RETRY_AFTER = 30
"""Seconds, in the 429 answer."""


def new_app(state: SandboxState) -> GuardedQuart:
    """Return an app with the sandbox's pages, static files and error answers."""
    app = GuardedQuart()
    app.template_folder = str(PAGES)
    app.add_template_filter(format_dong, "dong")

    @app.context_processor
    def facts() -> dict[str, Any]:
        return {"origins": state.origins, "account": account_of(request.cookies)}

    @app.errorhandler(Invalid)
    def invalid(error: Invalid) -> Response:
        return as_json({"ok": False, "error": str(error)}, status=400)

    # From memory: a tab that is closed while a file is sent to it would leave that file open.
    static = {path.name: path.read_bytes() for path in (PAGES / "static").iterdir()}

    @app.get("/static/<name>")
    async def static_file(name: str) -> Response:
        if name not in static:
            raise NotFound
        return Response(static[name], content_type=guess_type(name)[0])

    @app.get("/favicon.ico")
    async def no_icon() -> Response:
        return Response("", status=204)

    @app.get("/verify/<any(captcha, traffic):kind>")
    async def verify(kind: str) -> str:
        return await render_template("verify.html", kind=kind)

    return app


def as_json(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer."""
    return Response(
        json.dumps(value, ensure_ascii=False),
        status=status,
        headers=dict(headers or {}),
        content_type="application/json; charset=utf-8",
    )


def graphql_errors(message: str, code: int) -> dict[str, Any]:
    """Return the body by which GraphQL reports that a whole call failed; the status is 200."""
    return {
        "errors": [{"message": message, "extensions": {"code": code, "message": message}}],
        "data": None,
    }


def redirect_to(address: str) -> Response:
    """Return a redirect."""
    return Response("", status=302, headers={"Location": address})


def address_of(behaviour: str, state: SandboxState) -> str:
    """Return the URL of the login page or a check, which names the current page as real ones do."""
    here = quote(state.origins.portal + request.full_path.rstrip("?"), safe="")
    return f"{state.origins.shop}{_REDIRECTS[behaviour]}?next={here}"


async def raw_body() -> bytes:
    """Return the request's body as it came."""
    body: bytes = await request.get_data()  # type: ignore[assignment]  # text only with as_text
    return body


async def body_as(model: type[M]) -> M:
    """Return the request's JSON body as a model.

    Raises:
        Invalid: with the wrong fields.
    """
    try:
        return model.model_validate_json(await raw_body())
    except ValidationError as error:
        raise Invalid(describe_errors(error, whole="body")) from None


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
_INSTEAD: dict[str, tuple[int, dict[str, Any]]] = {
    "401": (401, {"code": 401, "msg": "unauthorized", **_LOGGED_OUT, "error": 401}),
    "403": (403, {"code": 403, "msg": "forbidden", "data": None}),
    "429": (429, {"code": 429, "msg": "too many requests", "data": None}),
    "500": (500, {"code": 500, "msg": "internal error", "data": None}),
    "logged_out": (200, _LOGGED_OUT),
    "logged_out_numeric": (
        200,
        {"1": False, "2": False, "3": 0, "4": 2, "5": HUMAN_CHECK_ERROR, "6": "sandbox"},
    ),
    "check_in_json": (403, _LOGGED_OUT | {"is_login": True}),
    "human_check": (200, _LOGGED_OUT | {"is_login": True}),
    "human_check_bare": (200, {"error": HUMAN_CHECK_ERROR, "tracking_id": "sandbox"}),
    "null": (200, {"code": 0, "msg": "success", "data": None}),
    "graphql_error": (200, graphql_errors("sandbox: refused", 90000)),
    "frozen": (
        200,
        {"code": 10033, "msg": "account is frozen", **graphql_errors("account is frozen", 10033)},
    ),
}
_REDIRECTS = {
    "login_redirect": "/buyer/login",
    "captcha": "/verify/captcha",
    "traffic": "/verify/traffic",
}


async def answer_to_call(behaviour: str, state: SandboxState, good: Any) -> Response:
    """Return the JSON `good`, or the wrong answer that `behaviour` names."""
    if behaviour in _REDIRECTS:
        return redirect_to(address_of(behaviour, state))
    if behaviour in _INSTEAD:
        status, body = _INSTEAD[behaviour]
        headers = {"Retry-After": str(RETRY_AFTER)} if behaviour == "429" else {}
        return as_json(body, status=status, headers=headers)
    half = json.dumps(good)[: len(json.dumps(good)) // 2]
    match behaviour:
        case "html":
            return Response(_LOGIN_HTML, content_type=HTML)
        case "truncated":
            return Response(half, content_type="application/json")
        case "cut":
            return unfinished(half, "application/json", state, is_cut=True)
        case "reset":
            _sever(state, *_addresses())
            await state.hold_back()  # until the server sees the reset and cancels this request
        case "slow":
            await state.hold_back()
    return as_json(good)


def unfinished(text: str, content_type: str, state: SandboxState, *, is_cut: bool) -> Response:
    """Return an answer of which `text` is sent and no more; the connection is cut then, or not."""
    addresses = _addresses()

    async def body() -> AsyncIterator[bytes]:
        yield text.encode()
        if is_cut:
            _sever(state, *addresses)
        await state.hold_back()

    response = Response(body(), content_type=content_type)
    response.timeout = None
    return response


def _addresses() -> tuple[Address, Address]:
    """Return the sandbox's and the client's address of the current request's connection."""
    scope: dict[str, Any] = dict(request.scope)
    return scope["server"], scope["client"]


def _sever(state: SandboxState, here: Address, there: Address) -> None:
    """Reset a connection: find its socket among the process's own, and close it without linger.

    ASGI cannot end a response without completing it or raising inside the server.
    """
    if state.sever is not None:
        state.sever(here, there)
        return
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names, not paths, are wanted
        with suppress(OSError):  # closed since it was listed, or of another family: not this one
            # Only sockets: the duplicate that `fromfd` makes of anything else is never closed, and
            # would keep a pipe open whose end somebody waits for.
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.fromfd(int(name), socket.AF_INET, socket.SOCK_STREAM) as connection:
                if (connection.getsockname(), connection.getpeername()) == (here, there):
                    no_linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
                    connection.shutdown(socket.SHUT_RD)
                    return
