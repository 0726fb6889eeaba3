"""Take one URL apart as a browser does. Pure.

Browsers accept more than RFC 3986 (WHATWG URL Standard): `\\` for `/`, spaces and `|` in a path,
the scheme's own port. People also paste URLs that a program has escaped twice.
`urllib.parse.urlsplit` differs: it drops tabs and newlines, and does not know the backslash.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from smartlinkd.marketplace.markets import is_plain_host

MAX_LINK = 4096
"""Characters. Longer than any product link seen, with its slug percent-encoded."""
_MAX_QUERY_FIELDS = 64

_ESCAPED_SCHEME = re.compile(r"https?%(?:25)*3A|[^/\\?#%]*%(?:25)*2F", re.IGNORECASE)
# Twice where two were joined. ASCII: to Unicode "\u017f" is an "s", and no scheme has it.
_SCHEME = re.compile(r"(?:(https?):[/\\]*)*", re.IGNORECASE | re.ASCII)
_PARTS = re.compile(r"([^/\\?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@\[\]]+))(?::([0-9]{1,5}))?")
_SLASHES = re.compile(r"[/\\]+")
# Control characters and lone surrogates.
_NEVER_IN_A_URL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OWN_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A URL's parts.

    Attributes:
        port: None if it is the scheme's own or is not written.
        path: begins with a slash, has no empty segments, and keeps its percent escapes.
        written_path: the same with its backslashes.
        query: the text between `?` and `#`.
    """

    host: str
    port: int | None
    path: str
    written_path: str
    query: str

    def fields(self) -> list[tuple[str, str]]:
        """Return the decoded fields of the query; [] when there are more than 64."""
        try:
            return parse_qsl(self.query, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError:
            return []


def take_apart(url: str) -> Address | str:
    """Return the parts of an `http` or `https` URL, or a text that says what is wrong with it.

    The scheme may be missing. The text repeats nothing of the URL.
    """
    if len(url) > MAX_LINK:
        return "it is too long"
    url = _unescape(url)
    if _NEVER_IN_A_URL.search(url):
        return "it has half a character or a control character in it"
    scheme = _SCHEME.match(url)
    assert scheme is not None  # noqa: S101 - it matches the empty text; for the type checker
    parts = _PARTS.fullmatch(url, scheme.end())
    authority = _AUTHORITY.fullmatch(parts[1]) if parts else None
    if parts is None or authority is None:
        return "it has no host, or more than a host and a port"
    host = (authority[1] or authority[2]).lower()
    if authority[2] and not is_plain_host(host):
        return "its host is not a plain name"
    port = int(authority[3]) if authority[3] else None
    if port == _OWN_PORTS[(scheme[1] or "https").lower()]:
        port = None
    path = _SLASHES.sub("/", parts[2]) or "/"
    return Address(host, port, path, written_path=parts[2], query=parts[3] or "")


def _unescape(url: str) -> str:
    """Undo one escape too many: JSON's `\\/`, HTML's `&amp;`, percent escapes."""
    for _ in range(2):
        if not _ESCAPED_SCHEME.match(url):
            break
        url = unquote(url)
    return url.replace("\\/", "/").replace("&amp;", "&")
