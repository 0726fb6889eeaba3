"""`/openapi.json`, and `/docs`: a page that reads it out to people.

The usual pages for this load scripts from other people's servers; this one is three small files of
ours, asks nobody else for anything, and its policy keeps it that way. Its addresses are relative,
so that it works behind a proxy that puts the daemon under a path.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from quart import Blueprint, Quart
from quart.typing import ResponseReturnValue

from daemon.api.openapi import Api

_PAGES = Path(__file__).parent / "pages"
_FILES = {
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def register(target: Quart | Blueprint, api: Api) -> None:
    """Serve the document of `api` and the page, to anyone: there is no secret in either."""

    @cache
    def document() -> str:
        return json.dumps(api.document())

    async def openapi() -> ResponseReturnValue:
        return document(), 200, {**_HEADERS, "Content-Type": "application/json"}

    target.add_url_rule(
        "/openapi.json", "openapi", openapi, methods=["GET"], provide_automatic_options=False
    )
    for path, (name, media_type) in _FILES.items():
        _serve_file(target, path, name, media_type)


def _serve_file(target: Quart | Blueprint, path: str, name: str, media_type: str) -> None:
    text = (_PAGES / name).read_text("utf-8")

    async def page() -> ResponseReturnValue:
        return text, 200, {**_HEADERS, "Content-Type": media_type}

    target.add_url_rule(
        path, name.replace(".", "_"), page, methods=["GET"], provide_automatic_options=False
    )
