"""A request's id: said in its answer, and put on every log line that was written for it.

A client, or a proxy in front, that has an id of its own for a request sends it as `X-Request-Id`,
and finds the same in our log. It is taken over only as what an id looks like: whoever sends it
would else write into our log whatever they like. All others get one of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from smartlinkd.logs import new_request_id

NAME: Final = "X-Request-Id"
LONGEST: Final = 64
"""Characters: UUIDs, the ids of W3C traces and those of clouds' load balancers have fewer, the
tokens that somebody may send by mistake more."""

_SANE: Final = re.compile(rb"[A-Za-z0-9._~:+/=@-]{1,%d}" % LONGEST)
_FIELD: Final = NAME.lower().encode()


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The id that a request came with, or a new one when it has none, several, or no sane one.

    Header names are in lower case.
    """
    given = [value for name, value in headers if name == _FIELD]
    if len(given) == 1 and _SANE.fullmatch(given[0]):
        return given[0].decode("ascii")
    return new_request_id()


def header_of(an_id: str) -> tuple[bytes, bytes]:
    """The header that says it."""
    return _FIELD, an_id.encode("ascii")
