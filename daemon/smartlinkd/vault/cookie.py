"""The value of a browser's `Cookie` header, parsed: `name=value; name=value`.

Chromium silently drops cookies beyond its limits, in the middle of a conversion. So the limits are
checked here, where the person who sent the cookie gets the error. Nothing that prints a `Cookie` (a
log line, a traceback) shows its values.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property

from smartlinkd.errors import Invalid

MAX_BYTES = 64 * 1024
MAX_PAIRS = 150
"""Chromium evicts cookies of a site that has more than 180, until 150 are left."""
MAX_PAIR_BYTES = 4096
"""A whole `name=value`. Chromium does not count the `=` (RFC 6265bis, section 5.6), so this is one
byte below its limit."""

_USER_ID = "SPC_U"
# All of Unicode's category Cc.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Cookie:
    """A parsed cookie string. `pairs` keeps the order; the first of a repeated name counts."""

    pairs: tuple[tuple[str, str], ...] = field(repr=False)

    def get(self, name: str) -> str | None:
        """Return the value of `name`, or None."""
        return next((value for key, value in self.pairs if key == name), None)

    def header(self) -> str:
        """Return the value of a `Cookie` header."""
        return "; ".join(f"{name}={value}" for name, value in self.pairs)

    # Both are cached: each link of a request needs them several times, and a digest hashes a whole
    # cookie.
    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole header, in hex."""
        return hashlib.sha256(self.header().encode()).hexdigest()

    @cached_property
    def account(self) -> str:
        """The marketplace's user id, else the digest.

        A user id can be forged. So it may only order work; what is shared (browser contexts, cached
        links) is keyed by `digest`.
        """
        user_id = self.get(_USER_ID) or "-"
        # The shop sets "-" for a visitor who is not logged in.
        return self.digest if user_id == "-" else user_id


def parse_cookie(text: str) -> Cookie:
    """Parse a cookie string. Raises `Invalid`, which names the rule and never shows a value."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid("cookie: holds half a character (a lone surrogate); copy it again") from None
    if size > MAX_BYTES:
        raise Invalid(f"cookie: {size} bytes, more than the {MAX_BYTES} that are accepted")
    if _CONTROL.search(text):
        raise Invalid(
            "cookie: holds a control character (a line break or tab, say); "
            "send the value of one Cookie header, in one line"
        )
    parts = [part.strip() for part in text.split(";")]
    # A part without "=", or with nothing before it, is a cookie without a name (RFC 6265bis,
    # section 5.6). Browsers send some, and no account depends on one.
    pairs = [_pair(number, part) for number, part in enumerate(parts, 1) if _has_name(part)]
    if not pairs:
        raise Invalid("cookie: holds no name=value pair; expected like 'SPC_U=…; SPC_EC=…'")
    if len(pairs) > MAX_PAIRS:
        raise Invalid(f"cookie: {len(pairs)} pairs, more than the {MAX_PAIRS} a browser keeps")
    first: dict[str, str] = {}
    for name, value in pairs:
        first.setdefault(name, value)
    return Cookie(tuple(first.items()))


def _has_name(part: str) -> bool:
    name, equals, _ = part.partition("=")
    return bool(equals and name.strip())


def _pair(number: int, part: str) -> tuple[str, str]:
    name, _, value = (piece.strip() for piece in part.partition("="))
    if any(char.isspace() for char in name):
        raise Invalid(
            f"cookie: part {number} is not a name=value pair; "
            "send the value of one Cookie header, pairs separated by semicolons"
        )
    if len(f"{name}={value}".encode()) > MAX_PAIR_BYTES:
        raise Invalid(f"cookie: pair {number} is over the {MAX_PAIR_BYTES} bytes that are accepted")
    return name, value
