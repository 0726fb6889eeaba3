"""`/openapi.json`, and `/docs`: a page that reads it out to people (see `static.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from quart import Quart
from quart.typing import ResponseReturnValue

from daemon.api.static import POLICY, serve_page

_FILES: Final = {
    "/docs": "docs.html",
    "/docs/docs.css": "docs.css",
    "/docs/docs.js": "docs.js",
}


def register(target: Quart, document: Callable[[], dict[str, Any]]) -> None:
    """Serve the OpenAPI `document`, made when it is first asked for, and the page.

    To anyone: there is no secret in either.
    """

    @cache
    def text() -> str:
        return json.dumps(document())

    async def openapi() -> ResponseReturnValue:
        headers = {
            "Content-Type": "application/json",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-cache",
        }
        return text(), 200, headers

    target.add_url_rule(
        "/openapi.json", "openapi", openapi, methods=["GET"], provide_automatic_options=False
    )
    serve_page(target, _FILES, policy=POLICY)
