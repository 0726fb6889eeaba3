"""`/openapi.json`, and `/docs`: a page that shows it to people."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from quart import Quart, Response
from quart.typing import ResponseReturnValue
from quart.wrappers.response import DataBody

from daemon.web.assets import REVALIDATE, Asset
from daemon.web.policy import HEADERS

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy: the page's own files and the daemon's own API, and nothing else."""

_PAGES: Final = Path(__file__).parent / "pages"
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

    async def without_slash() -> Response:
        return Response(DataBody(b""), 302, {"Location": "../docs"})

    target.add_url_rule(
        "/docs/",
        "docs with a slash",
        without_slash,
        methods=["GET"],
        provide_automatic_options=False,
    )
    for path, name in _FILES.items():
        target.add_url_rule(
            path,
            f"page {path}",
            partial(_file, _read(name)),
            methods=["GET"],
            provide_automatic_options=False,
        )


@cache
def _read(name: str) -> Asset:
    """Read a file once for all apps: a reload of the configuration makes new ones."""
    return Asset(name, (_PAGES / name).read_bytes())


async def _file(asset: Asset) -> Response:
    return asset.answer({**HEADERS, "Content-Security-Policy": POLICY}, cache=REVALIDATE)
