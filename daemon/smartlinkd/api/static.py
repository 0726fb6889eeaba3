"""`/openapi.json`, and `/docs`: Swagger UI, which shows it and tries it out.

Both are open to anyone, since there is no secret in either.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from quart import Quart, Response
from quart.wrappers.response import DataBody

from smartlinkd.web import libraries
from smartlinkd.web.assets import REVALIDATE, Asset, serve

_FOLDER: Final = Path(libraries.__file__).parent / "docs"
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def register(target: Quart, document: Callable[[], dict[str, Any]]) -> None:
    """Serve the OpenAPI `document`, made when it is first asked for, and the page."""

    @cache
    def described() -> Asset:
        return Asset("openapi.json", json.dumps(document()).encode())

    async def openapi() -> Response:
        return described().answer({}, cache=REVALIDATE)

    async def with_slash() -> Response:
        # The addresses in the page are relative to /docs.
        return Response(DataBody(b""), 302, {"Location": "../docs", "Cache-Control": "no-store"})

    serve(target, "/openapi.json", openapi)
    serve(target, "/docs/", with_slash)
    for path, file in {"/docs": _FOLDER / "index.html", **_files()}.items():
        serve(target, path, partial(_answer, Asset(file.name, file.read_bytes())))


def _files() -> dict[str, Path]:
    vendored = [
        libraries.FOLDER / file.path
        for file in libraries.read_list().files(used_by="docs")
        if file.path.endswith((".js", ".css"))
    ]
    return {f"/docs/{file.name}": file for file in (*vendored, _FOLDER / "docs.js")}


async def _answer(asset: Asset) -> Response:
    return asset.answer(_HEADERS, cache=REVALIDATE)
