"""What each code on the sandbox's short-link listener answers.

The codes play every way in which real short links lead on (redirects, a Refresh header, pages)
and every way in which they do not (loops, foreign hosts, dead codes, a server that never answers).
One pure function gives the answer to a code; the app that sends it knows no codes. Two rules stand
beside the table: `p<shop>i<item>` is a good short link for any product, so that a load test has as
many as it likes, and `chain<n>` takes n hops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from smartlinkd.sandbox.products import PRODUCTS

MOST_HOPS: Final = 5
"""The longest chain that still is a good link."""

BIG_BODY: Final = 5 * 1024 * 1024
"""Size in bytes of the `big` answer: more than any reader of a redirect page should keep."""

FOREIGN: Final = "http://foreign.example/product/88201679/23456789012"
"""A host that is not the marketplace's; the name is reserved and never resolves (RFC 2606)."""


class Way(Enum):
    """How an answer says where to go next, or that there is nowhere to go."""

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
    """One answer: the way on, and the address it leads to (empty where there is none)."""

    way: Way
    to: str = ""


@dataclass(frozen=True)
class Code:
    """A row of the documented table. `good` says that the link ends on a product."""

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
_ANY_PRODUCT = re.compile(r"p([0-9]{1,15})i([0-9]{1,15})")
_CHAIN = re.compile(r"chain([1-9])")


def hop_of(code: str, *, shop_url: str, short_url: str) -> Hop:
    """What a request for `code` is answered; an unknown code is as dead as `gone`."""
    if found := _ANY_PRODUCT.fullmatch(code):
        return Hop(Way.FOUND, f"{shop_url}/opaanlp/{found[1]}/{found[2]}?{_STAMP}")
    if found := _CHAIN.fullmatch(code):
        left = int(found[1]) - 1
        return (
            Hop(Way.FOUND, f"{short_url}/chain{left}")
            if left
            else hop_of("direct", shop_url=shop_url, short_url=short_url)
        )
    return _table(shop_url, short_url).get(code, Hop(Way.GONE))


def product_behind(code: str) -> tuple[int, int] | None:
    """(shop id, item id) that a good code ends on, or None: what the portal knows of it."""
    if found := _ANY_PRODUCT.fullmatch(code):
        return int(found[1]), int(found[2])
    return _target(code) if code in _GOOD else None


_STAMP = "utm_source=an_17000000001&utm_medium=affiliates&utm_campaign=-&utm_content=----"
"""Somebody else's affiliate stamp: what real short links end on, and what must not be passed on."""

_BY_CODE = {
    "moved": 1,
    "meta": 2,
    "script": 3,
    "refresh": 4,
    "variable": 5,
    "canonical": 6,
    "ogurl": 7,
}


def _target(code: str) -> tuple[int, int]:
    product = PRODUCTS[_BY_CODE.get(code, 0)]
    return product.shop_id, product.item_id


def _table(shop_url: str, short_url: str) -> dict[str, Hop]:
    def ids(code: str) -> str:
        shop_id, item_id = _target(code)
        return f"{shop_id}/{item_id}"

    def slug(code: str) -> str:
        shop_id, item_id = _target(code)
        return f"Hang-tot-i.{shop_id}.{item_id}"

    scheme, _, host = shop_url.partition("://")
    return {
        "direct": Hop(Way.FOUND, f"{shop_url}/universal-link/product/{ids('direct')}?{_STAMP}"),
        "moved": Hop(Way.MOVED, f"{shop_url}/product/{ids('moved')}?{_STAMP}"),
        "relative": Hop(Way.FOUND, "/direct"),
        "meta": Hop(Way.META, f"{shop_url}/{slug('meta')}?{_STAMP}"),
        "script": Hop(Way.SCRIPT, f"{shop_url}/universal-link/{slug('script')}?{_STAMP}"),
        "refresh": Hop(Way.REFRESH, f"{shop_url}/product/{ids('refresh')}?{_STAMP}"),
        "variable": Hop(Way.VARIABLE, f"{shop_url}/opaanlp/{ids('variable')}?{_STAMP}"),
        "canonical": Hop(Way.CANONICAL, f"{shop_url}/{slug('canonical')}"),
        "ogurl": Hop(Way.OG_URL, f"{shop_url}/product/{ids('ogurl')}"),
        "signin": Hop(Way.LOGIN, f"{shop_url}/product/{ids('signin')}"),
        "check": Hop(Way.FOUND, "/verify/captcha"),
        "unknown": Hop(Way.UNKNOWN),
        "loop": Hop(Way.FOUND, f"{short_url}/loopback"),
        "loopback": Hop(Way.FOUND, f"{short_url}/loop"),
        "foreign": Hop(Way.FOUND, FOREIGN),
        "lookalike": Hop(Way.FOUND, f"{scheme}://evil-{host}/product/{ids('lookalike')}"),
        "scheme": Hop(Way.FOUND, "file:///etc/passwd"),
        "nowhere": Hop(Way.FOUND),
        "home": Hop(Way.FOUND, f"{shop_url}/"),
        "broken": Hop(Way.BROKEN),
        "slow": Hop(Way.SLOW),
        "big": Hop(Way.BIG),
    }
