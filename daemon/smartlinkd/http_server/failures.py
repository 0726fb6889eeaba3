"""Failures that the server answers itself, with the failure body of the application."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from pydantic import JsonValue

from smartlinkd.errors import BUG

RETRY_AFTER: Final = 1  # seconds; connections end all the time

Headers = list[tuple[bytes, bytes]]

FailureBody = Callable[[int, str, str], Mapping[str, JsonValue]]
"""The body for a status, a text and the path that was asked for ("" when none is known)."""

_TEXTS: Final = {
    400: "this is not a valid HTTP/1.1 request; check its request line, headers and body framing",
    431: "the request's line and headers are too large; send fewer or shorter ones",
    500: BUG,
    501: 'the only transfer coding taken is "chunked"; send the body with it or a Content-Length',
    503: "all connections are taken; try again in a moment",
}


def plain_body(_status: int, text: str, _path: str) -> Mapping[str, JsonValue]:
    """Return the failure body of the affiliate service, which is also the default."""
    return {"ok": False, "error": text}


def failure(body_of: FailureBody, status: int, path: str | None = None) -> tuple[Headers, bytes]:
    """Return the headers and the body of the answer with `status`.

    `path` is None for what the application does not get. Which API it is for is not known then, so
    the body has the keys of both: `ok`, `error` and `message`.
    """
    text = _TEXTS.get(status, _TEXTS[500 if status >= 500 else 400])
    content = body_of(status, text, path or "")
    if path is None:
        content = {"ok": False, "message": text, **content}
    body = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER).encode()))
    return headers, body
