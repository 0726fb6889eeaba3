"""The grammar of links: text that a client submitted → product, short link, or neither.

The problem: people paste whatever their phone gives them (no scheme, a slug in any alphabet,
tracking parameters of another affiliate, a wrapper around the real link), and strangers paste
things that only look like the marketplace. What is accepted here is sent upstream in the owner's
name, or fetched from our address.

The choice: the text is taken apart by rules of our own, strict about the authority and generous
about the path, and what comes out is never the text again: a product is two numbers, put back
together as the canonical link of the configured market, and a short link is an origin of the market
and one code. Rejected: `urllib.parse.urlsplit`, which drops tabs and newlines, keeps user names,
and takes a backslash for an ordinary character, where browsers do something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from daemon.marketplace.markets import Market, covers, is_plain_host, own_host_and_port

# Longer than any product link seen, with its slug percent-encoded from a three-byte alphabet.
MAX_LINK = 4096
# Ids are signed 64-bit numbers in the marketplace's own answers.
MAX_ID = 2**63 - 1
# A wrapper in a wrapper is all that has been seen; a third one is somebody playing.
_MAX_WRAPPERS = 2
_MAX_QUERY_FIELDS = 64


@dataclass(frozen=True, slots=True)
class Product:
    """A product of the market, by its shop and item number."""

    shop_id: int
    item_id: int

    def url(self, market: Market) -> str:
        """The canonical link: no slug, no query, so nobody else's stamp on it."""
        return f"{market.shop_url}/product/{self.shop_id}/{self.item_id}"


@dataclass(frozen=True, slots=True)
class Short:
    """A short link of the market; what it stands for is known once it is resolved."""

    url: str


@dataclass(frozen=True, slots=True)
class Page:
    """An address of the market that a redirect may pass through: safe to fetch."""

    url: str


@dataclass(frozen=True, slots=True)
class NotALink:
    """Nothing of this market. `why` is for the log, and repeats nothing of the text."""

    why: str


# RFC 3986 section 3, less what nobody sends. `\s` covers every alphabet's spaces; of half a
# character (a lone surrogate) no address can be made.
_FORBIDDEN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PARTS = re.compile(r"([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?")
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:@\[\]]+))(?::([0-9]{1,5}))?")

_NUMBER = "([0-9]{1,19})"
_PRODUCT_PATHS = (
    # /<slug>-i.<shop>.<item>, also below /universal-link
    re.compile(rf"/(?:universal-link/)?(?:[^/]*-)?i\.{_NUMBER}\.{_NUMBER}/?"),
    # /product/<shop>/<item>, /opaanlp/<shop>/<item>, /<name>/<shop>/<item>, also below it
    re.compile(rf"/(?:universal-link/)?[^/]+/{_NUMBER}/{_NUMBER}/?"),
)
_SHORT_PATH = re.compile(r"/([A-Za-z0-9_-]{1,64})/?")
# shp.ee/dlink… signs a phone in: whoever opens it has used it up.
_LOGIN_PATH = re.compile(r"(?:^|/)dlink", re.IGNORECASE)
_EARNER = re.compile(r"[?&]utm_source=(an_[0-9]{1,20})(?=[&#]|$)")
_SUB_IDS = re.compile(r"[?&]utm_content=([A-Za-z0-9-]*)(?=[&#]|$)")

# Where the real link is a parameter: path → its name.
_WRAPPERS = {"/universal-link": "redir", "/an_redir": "origin_link"}


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    port: int | None
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class _PageAddress:
    """An address of the market that is no product; `code` is set when it is a short link."""

    address: _Address
    origin: str
    code: str | None


def parse(text: str, market: Market) -> Product | Short | NotALink:
    """What a submitted link is. Never raises; the scheme may be left out.

    A short link loses its query: the code alone says what it stands for, and the parameters that a
    sharer's app puts there can change where it leads.
    """
    found = _find(text, market, _MAX_WRAPPERS)
    if not isinstance(found, _PageAddress):
        return found
    if found.code is None:
        return NotALink("a page of the marketplace that is no product")
    return Short(f"{found.origin}/{found.code}")


def follow(url: str, market: Market) -> Product | Page | NotALink:
    """Where a redirect of the market leads. Never raises.

    A product ends the journey. A `Page` may be fetched: host and port are the market's, the scheme
    is that of the market's own origin, and the query is kept, since here the market wrote it.
    """
    found = _find(url, market, _MAX_WRAPPERS)
    return Page(_url_of(found)) if isinstance(found, _PageAddress) else found


def earner(long_link: str) -> str | None:
    """By which name the account that earns is known (`an_…`), as an affiliate long link says."""
    found = _EARNER.search(long_link)
    return found[1] if found else None


def counted_under(long_link: str) -> str | None:
    """The sub-ids that a sale is counted under, as `as_counted` writes them; None where an
    affiliate long link does not say."""
    found = _SUB_IDS.search(long_link)
    return as_counted(found[1].split("-")) if found else None


def as_counted(sub_ids: Sequence[str]) -> str:
    """How a long link has them, without the empty ones at the end."""
    return "-".join(sub_ids).rstrip("-").lower()


def _find(text: str, market: Market, wrappers_left: int) -> Product | _PageAddress | NotALink:
    address = _take_apart(text)
    if isinstance(address, NotALink):
        return address
    here = (address.host, address.port)
    short_urls = (url for url in market.short_urls if own_host_and_port(url) == here)
    short_origin = next(short_urls, None)
    of_shop = covers(market.shop_url, *here)
    if not of_shop and short_origin is None:
        return NotALink("its host is none of this market's")
    if of_shop and (product := _product(address.path)) is not None:
        return product
    inner = _wrapped(address)
    if inner is not None and wrappers_left:
        return _find(inner, market, wrappers_left - 1)
    if short_origin is not None:
        both = own_host_and_port(market.shop_url) == here
        return _on_short_host(address, short_origin, also_shop=both)
    return _PageAddress(address, market.shop_url, code=None)


def _on_short_host(address: _Address, origin: str, *, also_shop: bool) -> _PageAddress | NotALink:
    """Short hosts serve codes and nothing else, unless one address is configured for both."""
    if _LOGIN_PATH.search(unquote(address.path)):
        return NotALink("it signs somebody in, and is never opened")
    code = None if _is_wrapper(address) else _SHORT_PATH.fullmatch(address.path)
    if code is None and not also_shop:
        return NotALink("it is on a short host, but no short link")
    return _PageAddress(address, origin, code[1] if code else None)


def _take_apart(text: str) -> _Address | NotALink:
    if len(text) > MAX_LINK:
        return NotALink("it is too long")
    if _FORBIDDEN.search(text):
        return NotALink(
            "it has a space, a backslash, half a character or a control character in it"
        )
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() not in ("http", "https"):
        return NotALink("its scheme is not http or https")
    parts = _PARTS.fullmatch(text, scheme.end() if scheme else 0)
    authority = _AUTHORITY.fullmatch(parts[1]) if parts else None
    if parts is None or authority is None:
        return NotALink("it has no host, or more than a host and a port")
    host = (authority[1] or authority[2]).lower()
    if authority[2] and not is_plain_host(host):
        return NotALink("its host is not a plain name")
    port = int(authority[3]) if authority[3] else None
    return _Address(host, port, path=parts[2], query=parts[3] or "")


def _product(path: str) -> Product | None:
    for form in _PRODUCT_PATHS:
        if match := form.fullmatch(path):
            shop_id, item_id = int(match[1]), int(match[2])
            if 0 < shop_id <= MAX_ID and 0 < item_id <= MAX_ID:
                return Product(shop_id, item_id)
    return None


def _is_wrapper(address: _Address) -> bool:
    return address.path.rstrip("/") in _WRAPPERS


def _wrapped(address: _Address) -> str | None:
    if not _is_wrapper(address):
        return None
    name = _WRAPPERS[address.path.rstrip("/")]
    try:
        fields = parse_qsl(address.query, max_num_fields=_MAX_QUERY_FIELDS)
    except ValueError:  # more fields than that
        return None
    return next((value for key, value in fields if key == name), None)


def _url_of(page: _PageAddress) -> str:
    address = page.address
    scheme = page.origin.partition("://")[0]
    host = f"[{address.host}]" if ":" in address.host else address.host
    port = f":{address.port}" if address.port is not None else ""
    query = f"?{address.query}" if address.query else ""
    return f"{scheme}://{host}{port}{address.path or '/'}{query}"
