"""What the sandbox's three apps have in common: how an app is made, and how it answers.

Every app reads the cookies of its own requests: a browser sends them to all three listeners, since
cookies know hosts and no ports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from mimetypes import guess_type
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from quart import Response, redirect, render_template, request
from werkzeug.exceptions import NotFound
from werkzeug.wrappers import Response as Redirect

from smartlinkd.errors import Invalid
from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.answers import dong
from smartlinkd.sandbox.session import session_of
from smartlinkd.sandbox.state import State
from smartlinkd.sandbox.validation import first_fault

M = TypeVar("M", bound=BaseModel)
Answer = Response | Redirect

PAGES = Path(__file__).parent / "pages"


def new_app(state: State) -> GuardedQuart:
    """An app with the sandbox's pages, static files and error answers."""
    app = GuardedQuart()
    app.template_folder = str(PAGES)
    app.add_template_filter(dong)

    @app.context_processor
    def facts() -> dict[str, Any]:
        session = session_of(request.cookies)
        return {"origins": state.origins, "account": session.account if session else None}

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
        state.counters[f"verify page {kind}"] += 1
        return await render_template("verify.html", kind=kind)

    return app


def as_json(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(
        json.dumps(value, ensure_ascii=False),
        status=status,
        headers=dict(headers or {}),
        content_type="application/json; charset=utf-8",
    )


def to_login(state: State) -> Redirect:
    """The redirect of a request that is not signed in."""
    return redirect(login_url(state))


def login_url(state: State) -> str:
    """The login page, which knows where to come back to."""
    return f"{state.origins.shop}/buyer/login?next={quote(_here(state), safe='')}"


def to_check(state: State, kind: str) -> Redirect:
    """The redirect of a request that a person has to vouch for."""
    return redirect(f"{state.origins.shop}/verify/{kind}?next={quote(_here(state), safe='')}")


async def raw_body() -> bytes:
    """The request's body as it came."""
    body: bytes = await request.get_data()  # type: ignore[assignment]  # text only with as_text
    return body


async def body_as(model: type[M]) -> M:
    """The request's JSON body as a `model`. Raises `Invalid` with the field and its fault."""
    try:
        return model.model_validate_json(await raw_body())
    except ValidationError as error:
        raise Invalid(first_fault(error)) from None


def _here(state: State) -> str:
    return state.origins.portal + request.full_path.rstrip("?")
