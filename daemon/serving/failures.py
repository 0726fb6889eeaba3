"""The answers to what never reaches the application, in the one failure body."""

from __future__ import annotations

import json

RETRY_AFTER = 1  # seconds; a connection is free again as soon as one ends

_TEXTS = {
    400: "this is not a valid HTTP/1.1 request; check its request line, headers and body framing",
    431: "the request's line and headers are too large; send fewer or shorter ones",
    500: "internal error; the daemon's log has it",
    501: 'the only transfer coding taken is "chunked"; send the body with it or a Content-Length',
    503: "all connections are taken; try again in a moment",
}


def failure(status: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Headers and body of the answer with `status`."""
    text = _TEXTS.get(status, _TEXTS[500 if status >= 500 else 400])
    body = json.dumps({"ok": False, "error": text}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    if status == 503:
        headers.append((b"retry-after", str(RETRY_AFTER).encode()))
    return headers, body
