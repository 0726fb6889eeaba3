"""The grammar of links: from a pasted text to a product, a short link, or neither. Pure.

People paste what their phone gives them: a link in a message, in quotes, behind another site's
redirect, or escaped twice. Strangers paste what only looks like the marketplace, so the host alone
decides. No pasted text is passed on: a product is two numbers, from which its canonical link is
made; a short link is an origin of the market and one code. A new form of path is added here, a new
host in `markets.py`; `urls.py` takes a URL apart. Affiliate ids and sub-ids are read here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from urllib.parse import unquote

from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.urls import Address, covers, host_and_port, take_apart

MAX_TEXT = 64 * 1024
"""Characters of a text that `parse` looks for one link in."""
MAX_ID = 2**63 - 1
"""The marketplace's own answers have ids as signed 64-bit numbers."""
# One wrapper inside another has been seen, three have not.
_MAX_WRAPPERS = 2


@dataclass(frozen=True, slots=True)
class Product:
    """A product of the market, by its shop and item number."""

    shop_id: int
    item_id: int

    def url(self, market: Market) -> str:
        """Return the canonical link: no slug and no query, so nobody else's stamp on it."""
        return f"{market.shop_url}/product/{self.shop_id}/{self.item_id}"


@dataclass(frozen=True, slots=True)
class MarketPage:
    """An address of the market that a redirect may lead through. It is safe to fetch."""

    url: str


@dataclass(frozen=True, slots=True)
class Short(MarketPage):
    """A short link of the market. The product behind it is known once it is resolved."""


@dataclass(frozen=True, slots=True)
class NotALink:
    """No product or short link of this market. `why` is for the log and repeats no pasted text."""

    why: str


@dataclass(frozen=True, slots=True)
class FoundLink:
    """A link of the market in a text, `text[start:end]`, and its meaning."""

    start: int
    end: int
    reading: Product | Short


# Forms of paths

_NUMBER = "([0-9]{1,19})"
_PRODUCT_PATHS = (
    # /<slug>-i.<shop>.<item>, also below /universal-link; people paste slugs with raw spaces
    re.compile(rf"/(?:universal-link/)?(?:[^/]*-)?i\.{_NUMBER}\.{_NUMBER}"),
    # /product/<shop>/<item>, /opaanlp/<shop>/<item>, /<name>/<shop>/<item>, also below it
    re.compile(rf"/(?:universal-link/)?[^/\s]+/{_NUMBER}/{_NUMBER}"),
)
_LEADING_NUMBER = re.compile(rf"{_NUMBER}(.*)", re.DOTALL)
_SHORT_PATH = re.compile(r"/([A-Za-z0-9_-]{1,64})")
# Pages about one product that have its numbers in the query. The names' case and `_` vary.
_IDS_IN_QUERY = re.compile(
    r"/(?:find_similar_products|(?:universal-link/)?product|api/v[0-9]/(?:item|pdp)/get(?:_pc)?)/?"
)
# shp.ee/dlink… signs a phone in: whoever opens it has used it up.
_LOGIN_PATH = re.compile(r"(?:^|/)dlink", re.IGNORECASE)
_EARNER = re.compile(r"[?&]utm_source=(an_[0-9]{1,20})(?=[&#]|$)")
_SUB_IDS = re.compile(r"[?&]utm_content=([A-Za-z0-9-]*)(?=[&#]|$)")

# Pages of the market whose real link is a parameter: path → the parameter's name.
_WRAPPERS = {"/universal-link": "redir", "/an_redir": "origin_link"}

# Links in a text

_TOKEN = re.compile(r"[^\s<>\"`]+")
_REST_OF_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029<>\"`]*")
_ANY_SITE = r"https?(?::|%(?:25)*3A)(?:[/\\]|%(?:25)*2F)+"
# Behind one of these a link is a part of another one.
_INSIDE_A_LINK = frozenset("/\\=?&#%@")
_OTHER_SCHEME = re.compile(
    r"[\W_]*+(?:(?:about|blob|data|file|filesystem|ftp|intent|javascript|mailto|tel|vbscript|"
    r"view-source):|(?!(?:[a-z0-9+.-]*\.)?https?:)[a-z][a-z0-9+.-]*:[/\\]{2})",
    re.IGNORECASE,
)
# Another site's link with a query, such as l.facebook.com/l.php?u=…
_WITHOUT_SCHEME = re.compile(
    r"(?:[a-z0-9-]+\.)+[a-z]{2,}(?::[0-9]{1,5})?(?:/[^?]*)?\?", re.IGNORECASE
)
_NAME_BEFORE = re.compile(r"[^/\\.:@?#&%=]*=")
# At its end a link may have these. Other punctuation there is decoration.
_SIGNS_OF_LINKS = frozenset("/_-=+%")
_DECORATION_AND_DIGIT = re.compile(r"(?:[^\w\s]|_)+\d")


def parse(text: str, market: Market) -> Product | Short | NotALink:
    """Return the one product or short link that a pasted text means. Never raises.

    Pages of the market that are neither, and other sites' links, do not count beside it. Two
    links with different meanings are none. A text of more than `MAX_TEXT` characters is none.
    """
    if len(text) > MAX_TEXT:
        return NotALink("the text is too long")
    meanings = {found.reading for found in find_links(text, market)}
    if len(meanings) == 1:
        return meanings.pop()
    if meanings:
        return NotALink("there are two different links in it")
    whole = text.strip()
    reading = _read(whole, market, submitted=True)
    if isinstance(reading, Product) and len(whole.split()) == 1:
        return reading  # with a quote or "<" in its slug, which end a link in a text
    why = reading.why if isinstance(reading, NotALink) else "a page that is no product"
    return NotALink(why)


def find_links(text: str, market: Market) -> list[FoundLink]:
    """Return the product and short links in a text, in their order. Never raises.

    The time it takes is linear in the text's length.
    """
    spans = list(_spans(text, market))
    found = [link for start, end in spans if (link := _link_at(text, start, end, market))]
    if not found and len(spans) == 1:
        # A raw space in a slug or a query. Nothing else in the text is a link, so it is this one's.
        start = spans[0][0]
        line = _REST_OF_LINE.match(text, start)
        link = _link_at(text, start, line.end() if line else start, market)
        return [link] if link else []
    return found


def follow(url: str, market: Market) -> Product | MarketPage | NotALink:
    """Return where a redirect of the market leads. Never raises.

    A product ends the journey. A `MarketPage` may be fetched: host and port are the market's, the
    scheme is that of the market's own origin, and the query is kept, since the market wrote it.
    """
    return _read(url.strip(), market, submitted=False)


def affiliate_id_in(long_link: str) -> str | None:
    """Return the name of the account that earns (`an_…`); None when the long link has none."""
    found = _EARNER.search(long_link)
    return found[1] if found else None


def sub_ids_in(long_link: str) -> str | None:
    """Return the sub-ids that a sale is counted under, as `joined_sub_ids` writes them.

    None when the long link has no parameter for them.
    """
    found = _SUB_IDS.search(long_link)
    return joined_sub_ids(found[1].split("-")) if found else None


def joined_sub_ids(sub_ids: Sequence[str]) -> str:
    """Return the sub-ids as a long link has them, in lower case, without empty ones at the end."""
    return "-".join(sub_ids).rstrip("-").lower()


def _spans(text: str, market: Market) -> Iterator[tuple[int, int]]:
    """Yield where links may stand: each from its first character to the next link or blank."""
    start_of_link = _start_of_link(market)
    for token in _TOKEN.finditer(text):
        if _OTHER_SCHEME.match(text, token.start(), token.end()):
            continue
        begins: list[int] = []
        starts = start_of_link.finditer(text, token.start(), token.end())
        for place, found in enumerate(starts):
            begin = found.start()
            is_inside = begin > token.start() and text[begin - 1] in _INSIDE_A_LINK
            # Before a later one there is the first, which no name can hold.
            has_name = place == 0 and _NAME_BEFORE.fullmatch(text, token.start(), begin)
            if not is_inside or has_name:  # url=https://…
                begins.append(begin)
        if not begins and _WITHOUT_SCHEME.match(token[0]):
            begins = [token.start()]
        yield from pairwise([*begins, token.end()])


@lru_cache(maxsize=16)
def _start_of_link(market: Market) -> re.Pattern[str]:
    """Return what finds the beginning of a link: any site's scheme, or a host of this market."""
    hosts = {re.escape(_written(url)) for url in (market.shop_url, *market.short_urls)}
    return re.compile(
        rf"(?<![A-Za-z+])(?<![A-Za-z0-9]-){_ANY_SITE}"
        rf"|(?<![\w.-])(?:[a-z0-9-]{{1,63}}\.){{0,4}}(?:{'|'.join(sorted(hosts))})"
        r"(?::[0-9]{1,5})?(?=[/\\]|%(?:25)*2F)",
        re.IGNORECASE,
    )


def _written(origin_url: str) -> str:
    return origin_url.partition("://")[2]


def _link_at(text: str, start: int, end: int, market: Market) -> FoundLink | None:
    """Read `text[start:end]`, without the decoration at its end."""
    while end > start and not (text[end - 1].isalnum() or text[end - 1] in _SIGNS_OF_LINKS):
        end -= 1
    link = text[start:end]
    if start and text[start - 1] == "_":  # Markdown's _link_
        link = link.rstrip("_")
    reading = _read(link, market, submitted=True)
    if isinstance(reading, Product | Short):
        return FoundLink(start, start + len(link), reading)
    return None


def _read(
    url: str, market: Market, *, submitted: bool, wrappers: int = _MAX_WRAPPERS
) -> Product | MarketPage | NotALink:
    """Read one URL.

    Of `submitted` ones, another site's link counts for the one in its query, and a short link is a
    `Short`.
    """
    address = take_apart(url)
    if isinstance(address, str):
        return NotALink(address)
    here = (address.host, address.port)
    of_shop = covers(market.shop_url, *here)
    short_urls = (url for url in market.short_urls if host_and_port(url) == here)
    short_origin = next(short_urls, None)
    if not of_shop and short_origin is None:
        if submitted and wrappers and not _resembles(address.host, market):
            return _in_query(address, market, wrappers - 1)
        return NotALink("its host is none of this market's")
    product = _product(address) if of_shop else None
    inner = _wrapped(address) if wrappers else None
    if product is None and inner is not None:
        return _read(inner, market, submitted=submitted, wrappers=wrappers - 1)
    if product is None and short_origin is not None:
        both = host_and_port(market.shop_url) == here
        return _on_short_host(address, short_origin, submitted=submitted, also_shop=both)
    return product or _page(address, market.shop_url)


def _in_query(address: Address, market: Market, wrappers: int) -> Product | Short | NotALink:
    """Read the one link of the market in the query of another site's link.

    That site is never asked, and its own path says nothing.
    """
    found: set[Product | Short] = set()
    for name, value in address.fields():
        link = name if not value and "://" in name else value  # a field may be a link as a whole
        reading = _read(link.strip(), market, submitted=True, wrappers=wrappers)
        if isinstance(reading, Product | Short):
            found.add(reading)
    if len(found) == 1:
        return found.pop()
    return NotALink(f"another site's link with {len(found)} links of this market in its query")


def _resembles(host: str, market: Market) -> bool:
    """True for a host that somebody could take for the market's: its name is a part of it."""
    own = [host_and_port(url)[0] for url in (market.shop_url, *market.short_urls)]
    brand = _SHOP_NAME.match(own[0])
    names = [*own, brand[1]] if brand else own
    return any(name in host for name in names)


_SHOP_NAME = re.compile(r"([a-z][a-z-]{3,})\.")


def _on_short_host(
    address: Address, origin: str, *, submitted: bool, also_shop: bool
) -> MarketPage | NotALink:
    """Read an address of a short host: a code, or any page where the shop is on the same host."""
    if _LOGIN_PATH.search(unquote(address.path)):
        return NotALink("it signs somebody in, and is never opened")
    is_wrapper = address.path.rstrip("/") in _WRAPPERS
    code = None if is_wrapper else _SHORT_PATH.match(address.path)
    if code is not None and _is_decoration(address.path[code.end() :]):
        # The code alone says what a link stands for. The parameters that a sharer's app adds can
        # change where it leads; in a redirect they are the market's own.
        return Short(f"{origin}/{code[1]}") if submitted else _page(address, origin)
    return _page(address, origin) if also_shop else NotALink("on a short host, but no short link")


def _product(address: Address) -> Product | None:
    # A backslash is a slash to a browser, and part of the slug to whoever wrote it there.
    for path in dict.fromkeys((address.path, address.written_path)):
        for form in _PRODUCT_PATHS:
            match = form.match(path)
            if match and _is_decoration(path[match.end() :]):
                return _of_ids(match[1], match[2])
    if _IDS_IN_QUERY.fullmatch(address.path):
        ids = {name.replace("_", "").lower(): value for name, value in address.fields()}
        shop_id = _LEADING_NUMBER.match(ids.get("shopid", ""))
        item_id = _LEADING_NUMBER.match(ids.get("itemid", ""))
        if shop_id and item_id and _is_decoration(shop_id[2]) and _is_decoration(item_id[2]):
            return _of_ids(shop_id[1], item_id[1])
    return None


def _of_ids(shop_id: str, item_id: str) -> Product | None:
    product = Product(int(shop_id), int(item_id))
    in_range = 0 < product.shop_id <= MAX_ID and 0 < product.item_id <= MAX_ID
    return product if in_range else None


def _is_decoration(rest: str) -> bool:
    """True when what stands in a path behind an id or a code is no part of it.

    It is a part when it begins with a letter or a digit, or when another segment does. Where
    punctuation and a digit follow, nobody knows where the number ends.
    """
    shown = unquote(rest).removeprefix("/")
    return not shown[:1].isalnum() and not _DECORATION_AND_DIGIT.match(shown)


def _wrapped(address: Address) -> str | None:
    name = _WRAPPERS.get(address.path.rstrip("/"))
    return next((value for key, value in address.fields() if key == name and value), None)


def _page(address: Address, origin: str) -> MarketPage:
    scheme = origin.partition("://")[0]
    host = f"[{address.host}]" if ":" in address.host else address.host
    port = f":{address.port}" if address.port is not None else ""
    query = f"?{address.query}" if address.query else ""
    return MarketPage(f"{scheme}://{host}{port}{address.path}{query}".replace(" ", "%20"))
