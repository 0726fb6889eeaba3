"""Answers to what never reaches the application, and request ids.

A failure has the application's own failure body. A request's id is in its answer, and on each log
line that is written for it. A client, or a proxy in front, sends its own as `X-Request-Id`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from smartlinkd.errors import BUG
from smartlinkd.logs import new_request_id

RETRY_AFTER: Final = 1  # seconds; a connection is free again as soon as one ends

REQUEST_ID_HEADER: Final = "X-Request-Id"
LONGEST_REQUEST_ID: Final = 64
"""Characters. UUIDs, W3C trace ids and those of load balancers are shorter; a token that somebody
sends by mistake is longer."""

_SANE_ID: Final = re.compile(rb"[A-Za-z0-9._~:+/=@-]{1,%d}" % LONGEST_REQUEST_ID)
_ID_FIELD: Final = REQUEST_ID_HEADER.lower().encode()

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

    `path` is None for what is no request that can be read. Nobody knows then which API it is for,
    so the body has the keys of both: `ok`, `error` and `message`.
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


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id that a request came with, or a new one.

    It is new when the request has none, several, or one that does not look like an id: others could
    write into our log whatever they like. Header names are in lower case.
    """
    given = [value for name, value in headers if name == _ID_FIELD]
    if len(given) == 1 and _SANE_ID.fullmatch(given[0]):
        return given[0].decode("ascii")
    return new_request_id()


def request_id_header(an_id: str) -> tuple[bytes, bytes]:
    """Return the header that carries the id."""
    return _ID_FIELD, an_id.encode("ascii")
