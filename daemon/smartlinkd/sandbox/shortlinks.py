"""The codes of the sandbox's short-link listener, and their answers. Pure.

The codes show every way in which real short links lead on (redirects, a Refresh header, pages), and
every way in which they do not (loops, foreign hosts, dead codes, a server that never answers).
Beside the table, `p<shop>i<item>` is a good short link for any product, and `chain<n>` takes n
hops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from smartlinkd.sandbox.products import PRODUCTS

MOST_HOPS: Final = 5
"""The longest chain that is still a good link."""

BIG_BODY: Final = 5 * 1024 * 1024
"""Bytes of the `big` answer: more than any reader of a redirect page should keep."""

_STAMP = "utm_source=an_17000000001&utm_medium=affiliates&utm_campaign=-&utm_content=----"
"""Somebody else's affiliate stamp: real short links end on one, and it must not be passed on."""

_ANY_PRODUCT = re.compile(r"p([0-9]{1,15})i([0-9]{1,15})")
_CHAIN = re.compile(r"chain([1-9])")


class Way(Enum):
    """How an answer names the next address, or that there is none."""

    MOVED = 301
    FOUND = 302
    REFRESH = "refresh"
    META = "meta"
    SCRIPT = "script"
    VARIABLE = "variable"
    CANONICAL = "canonical"
    OG_URL = "og:url"
    LOGIN = "login"
    UNKNOWN = "unknown"
    GONE = 404
    BROKEN = 500
    SLOW = "slow"
    BIG = "big"


@dataclass(frozen=True)
class Hop:
    """One answer: the way on, and the address it leads to (empty if there is none)."""

    way: Way
    to: str = ""


@dataclass(frozen=True)
class Code:
    """A row of the documented table. `good` is True if the link ends on a product."""

    code: str
    shows: str
    good: bool = False


CODES: tuple[Code, ...] = (
    Code("direct", "one 302 to a product", good=True),
    Code("moved", "one 301 to a product", good=True),
    Code("relative", "a 302 whose Location has no host, to `direct`", good=True),
    Code("meta", "an HTML page with a meta refresh to a product", good=True),
    Code("script", "an HTML page whose script goes to a product", good=True),
    Code("refresh", "a page with a Refresh header to a product", good=True),
    Code("variable", "an HTML page whose script goes to a variable with a product", good=True),
    Code("canonical", "an HTML page whose canonical link is a product", good=True),
    Code("ogurl", "an HTML page whose og:url is a product", good=True),
    *(Code(f"chain{n}", f"{n} hops to a product", good=True) for n in range(2, MOST_HOPS + 1)),
    Code("chain6", "six hops: one too many"),
    Code("chain9", "nine hops: too many"),
    Code("loop", "two codes that lead to one another"),
    Code("foreign", "a hop to a host that is not the marketplace's"),
    Code("lookalike", "a hop to a host whose name only ends like the marketplace's"),
    Code("scheme", "a hop to a file: address"),
    Code("nowhere", "a 302 without a Location"),
    Code("home", "ends on the shop's front page, which is no product"),
    Code("unknown", "an HTML page that says nothing of where it leads"),
    Code("signin", "a login page whose canonical link is a product"),
    Code("check", "a 302 to a human check on the same host"),
    Code("gone", "404"),
    Code("broken", "500"),
    Code("slow", "no answer in any reasonable time"),
    Code("big", "five megabytes of HTML that lead nowhere"),
    Code("dlink7Qx", "a login link (every code that starts with dlink): must never be opened"),
)

_GOOD = {row.code for row in CODES if row.good} | {"chain1"}
_HOPS: dict[str, tuple[Way, str]] = {
    "direct": (Way.FOUND, "{shop}/universal-link/product/{ids}?{stamp}"),
    "moved": (Way.MOVED, "{shop}/product/{ids}?{stamp}"),
    "relative": (Way.FOUND, "/direct"),
    "meta": (Way.META, "{shop}/{slug}?{stamp}"),
    "script": (Way.SCRIPT, "{shop}/universal-link/{slug}?{stamp}"),
    "refresh": (Way.REFRESH, "{shop}/product/{ids}?{stamp}"),
    "variable": (Way.VARIABLE, "{shop}/opaanlp/{ids}?{stamp}"),
    "canonical": (Way.CANONICAL, "{shop}/{slug}"),
    "ogurl": (Way.OG_URL, "{shop}/product/{ids}"),
    "signin": (Way.LOGIN, "{shop}/product/{ids}"),
    "check": (Way.FOUND, "/verify/captcha"),
    "unknown": (Way.UNKNOWN, ""),
    "loop": (Way.FOUND, "{short}/loopback"),
    "loopback": (Way.FOUND, "{short}/loop"),
    "foreign": (Way.FOUND, "http://foreign.example/product/{ids}"),  # never resolves (RFC 2606)
    "lookalike": (Way.FOUND, "{lookalike}/product/{ids}"),
    "scheme": (Way.FOUND, "file:///etc/passwd"),
    "nowhere": (Way.FOUND, ""),
    "home": (Way.FOUND, "{shop}/"),
    "broken": (Way.BROKEN, ""),
    "slow": (Way.SLOW, ""),
    "big": (Way.BIG, ""),
}
_CODES_BY_PRODUCT = (
    "direct",
    "moved",
    "meta",
    "script",
    "refresh",
    "variable",
    "canonical",
    "ogurl",
)
"""The codes that lead to the products of the table, in its order. Others lead to the first."""


def hop_of(code: str, *, shop_url: str, short_url: str) -> Hop:
    """Return the answer to a request for `code`. An unknown code is gone."""
    if found := _ANY_PRODUCT.fullmatch(code):
        return Hop(Way.FOUND, f"{shop_url}/opaanlp/{found[1]}/{found[2]}?{_STAMP}")
    if found := _CHAIN.fullmatch(code):
        if found[1] != "1":
            return Hop(Way.FOUND, f"{short_url}/chain{int(found[1]) - 1}")
        code = "direct"
    if code not in _HOPS:
        return Hop(Way.GONE)
    way, to = _HOPS[code]
    shop_id, item_id = _product_ids(code)
    address = to.format(
        shop=shop_url,
        short=short_url,
        lookalike=shop_url.replace("://", "://evil-"),
        ids=f"{shop_id}/{item_id}",
        slug=f"Hang-tot-i.{shop_id}.{item_id}",
        stamp=_STAMP,
    )
    return Hop(way, address)


def product_behind(code: str) -> tuple[int, int] | None:
    """Return (shop id, item id) of the product that a good code ends on, else None."""
    if found := _ANY_PRODUCT.fullmatch(code):
        return int(found[1]), int(found[2])
    return _product_ids(code) if code in _GOOD else None


def _product_ids(code: str) -> tuple[int, int]:
    number = _CODES_BY_PRODUCT.index(code) if code in _CODES_BY_PRODUCT else 0
    return PRODUCTS[number].shop_id, PRODUCTS[number].item_id
