"""URLs and hosts: pasted URLs, of which more is understood than is valid, and origins. Pure.

Browsers accept more than RFC 3986 (WHATWG URL Standard): `\\` for `/`, spaces and `|` in a path,
the scheme's own port. People also paste URLs that a program has escaped twice.
`urllib.parse.urlsplit` is not for pasted ones: it drops newlines, and knows no backslash.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from smartlinkd.untrusted import REPLACEMENT

MAX_LINK = 4096
"""Characters. Longer than any product link seen, with its slug percent-encoded."""
_MAX_QUERY_FIELDS = 64

_ESCAPED_SCHEME = re.compile(r"https?%(?:25)*3A|[^/\\?#%]*%(?:25)*2F", re.IGNORECASE)
# Twice where two were joined. ASCII: to Unicode "\u017f" is an "s", and no scheme has it.
_SCHEME = re.compile(r"(?:(https?):[/\\]*)*", re.IGNORECASE | re.ASCII)
_PARTS = re.compile(r"([^/\\?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@\[\]]+))(?::([0-9]{1,5}))?")
_SLASHES = re.compile(r"[/\\]+")
# Control characters, line separators and lone surrogates.
_NEVER_IN_A_URL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_OWN_PORTS = {"http": 80, "https": 443}
# No `xn--` labels: no market has one, and look-alikes in other alphabets are written so.
_LABEL = r"(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# RFC 1035, section 2.3.4: 255 bytes with the bytes for lengths, so 253 characters.
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Address:
    """A URL's parts.

    Attributes:
        port: None if it is the scheme's own or is not written.
        path: begins with a slash, has no empty segments, and keeps its percent escapes.
        written_path: as it was written, with backslashes and doubled slashes; it may be empty.
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
    """Undo the escapes of other programs: JSON's `\\/`, HTML's `&amp;`, percent escapes twice."""
    for _ in range(2):
        if not _ESCAPED_SCHEME.match(url):
            break
        url = unquote(url)
    return url.replace("\\/", "/").replace("&amp;", "&")


def parts_of(url: str) -> SplitResult:
    """Return the parts of `url`. All are empty if `urlsplit` cannot read it."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def is_web_address(text: str) -> bool:
    """True for a URL of http or https without a space or a lost character."""
    parts = parts_of(text)
    is_whole = " " not in text and REPLACEMENT not in text
    return is_whole and parts.scheme in ("http", "https") and bool(parts.hostname)


def origin(text: str) -> str:
    """Return `text` as an origin: lower case, no trailing slash, no default port.

    Raises `ValueError` for anything but `http(s)://host[:port]`.
    """
    parts = urlsplit(text)
    host, port = parts.hostname or "", parts.port
    has_more = "@" in parts.netloc or parts.path not in ("", "/") or parts.query or parts.fragment
    is_host = is_plain_host(host) or is_ip(host)
    if parts.scheme not in ("http", "https") or has_more or not is_host:
        raise ValueError("not http(s)://host[:port]")
    shown = f"[{host}]" if ":" in host else host
    has_own_port = port in (None, _OWN_PORTS[parts.scheme])
    return f"{parts.scheme}://{shown}" + ("" if has_own_port else f":{port}")


def is_plain_host(host: str) -> bool:
    """True for a lower-case host name of letters, digits and hyphens, without punycode."""
    return _HOST.fullmatch(host) is not None


def covers(origin_url: str, host: str, port: int | None) -> bool:
    """True if `port` is the origin's, and `host` is its host or a sub-domain of it."""
    own, own_port = host_and_port(origin_url)
    return port == own_port and is_at_or_below(host, own)


def is_at_or_below(host: str, own: str) -> bool:
    """True if `host` is `own` or a sub-domain of it.

    A sub-domain ends with a dot and the whole of `own`, so `evil-shopee.vn` is none of `shopee.vn`.
    An IP address has no sub-domains.
    """
    return host == own or (host.endswith(f".{own}") and not is_ip(own))


def host_and_port(url: str) -> tuple[str, int | None]:
    """Return a URL's host, "" if it is no URL, and its port if one is written."""
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.hostname or "", parts.port
    return "", None


def is_ip(host: str) -> bool:
    """True for an IP address without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
