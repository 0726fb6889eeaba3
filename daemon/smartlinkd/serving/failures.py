"""The answers to what never reaches the application, in the application's own failure body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from smartlinkd.errors import BUG

RETRY_AFTER = 1  # seconds; a connection is free again as soon as one ends

FailureBody = Callable[[int, str, str], Mapping[str, JsonValue]]
"""The body for a status, a text and the path that was asked for ("" when none is known)."""

_TEXTS = {
    400: "this is not a valid HTTP/1.1 request; check its request line, headers and body framing",
    431: "the request's line and headers are too large; send fewer or shorter ones",
    500: BUG,
    501: 'the only transfer coding taken is "chunked"; send the body with it or a Content-Length',
    503: "all connections are taken; try again in a moment",
}


def plain_body(_status: int, text: str, _path: str) -> Mapping[str, JsonValue]:
    """The failure body of the affiliate service, and of whoever asks for no other."""
    return {"ok": False, "error": text}


def failure(
    body_of: FailureBody, status: int, path: str | None = None
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the headers and the body of the answer with `status`.

    `path` is None before a request is read. Nobody knows then which API it is for, so the body has
    the keys of both: `ok`, `error` and `message`.
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
