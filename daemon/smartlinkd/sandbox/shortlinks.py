"""The codes of the sandbox's short-link listener, and their answers. Pure.

The codes show every way in which real short links lead on (redirects, a Refresh header, pages), and
every way in which they do not (loops, foreign hosts, dead codes, a server that never answers).
Beside the table, `p<shop>i<item>` is a good short link for any product.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from smartlinkd.sandbox.products import PRODUCTS

BIG_BODY: Final = 5 * 1024 * 1024
"""Bytes of the `big` answer: more than any reader of a redirect page should keep."""

SLOW: Final = "slow"
"""The code that is answered after the hold."""

_STAMP = "utm_source=an_17000000001&utm_medium=affiliates&utm_campaign=-&utm_content=----"
"""Somebody else's affiliate stamp: real short links end on one, and it must not be passed on."""

_STAMPED = "{shop}/product/{ids}?{stamp}"
_CANONICAL = '<link rel="canonical" href="{to}">'
_NOT_FOUND = "<title>Liên kết không tồn tại</title>"
_ANY_PRODUCT = re.compile(r"p([0-9]{1,15})i([0-9]{1,15})")


@dataclass(frozen=True)
class Code:
    """A code and its answer: a redirect if the status is 301 or 302, else a page.

    Attributes:
        to: the address that it leads to, as a template.
        head: the page's head, as a template: {to} is the address for HTML, {script} for JavaScript,
            {filler} is `BIG_BODY` dots.
        is_refresh: True if the page has a Refresh header that leads to the address.
        product: the place in `PRODUCTS` of the product that the daemon is to find, if any.
    """

    code: str
    shows: str
    status: int = 200
    to: str = ""
    head: str = ""
    is_refresh: bool = False
    product: int | None = None

    def address(self, *, shop_url: str, short_url: str) -> str:
        """Return the address that this code leads to; "" if it leads nowhere."""
        product = PRODUCTS[self.product or 0]
        return self.to.format(
            shop=shop_url,
            short=short_url,
            lookalike=shop_url.replace("://", "://evil-"),
            ids=f"{product.shop_id}/{product.item_id}",
            slug=f"Hang-tot-i.{product.shop_id}.{product.item_id}",
            stamp=_STAMP,
        )


CODES: tuple[Code, ...] = (
    Code(
        "direct",
        "one 302 to a product",
        302,
        to="{shop}/universal-link/product/{ids}?{stamp}",
        product=0,
    ),
    Code("moved", "one 301 to a product", 301, to=_STAMPED, product=1),
    Code("relative", "a 302 whose Location has no host, to `direct`", 302, "/direct", product=0),
    Code(
        "meta",
        "an HTML page with a meta refresh to a product",
        to="{shop}/{slug}?{stamp}",
        head='<meta http-equiv="refresh" content="0; url={to}">',
        product=2,
    ),
    Code(
        "script",
        "an HTML page whose script goes to a product",
        to="{shop}/universal-link/{slug}?{stamp}",
        head="<script>window.location.replace({script});</script>",
        product=3,
    ),
    Code(
        "refresh",
        "a page with a Refresh header to a product",
        to=_STAMPED,
        is_refresh=True,
        product=4,
    ),
    Code(
        "variable",
        "an HTML page whose script goes to a variable with a product",
        to="{shop}/opaanlp/{ids}?{stamp}",
        head="<script>var u = {script}; location.href = u;</script>",
        product=5,
    ),
    Code(
        "canonical",
        "an HTML page whose canonical link is a product",
        to="{shop}/{slug}",
        head=_CANONICAL,
        product=6,
    ),
    Code(
        "ogurl",
        "an HTML page whose og:url is a product",
        to="{shop}/product/{ids}",
        head='<meta property="og:url" content="{to}">',
        product=7,
    ),
    Code("chain2", "2 hops to a product", 302, "{short}/direct", product=0),
    *(
        Code(
            f"chain{n}",
            f"{n} hops to a product",
            302,
            f"{{short}}/chain{n - 1}",
            product=0 if n <= 5 else None,
        )
        for n in range(3, 10)
    ),
    Code("loop", "leads to `loopback`", 302, "{short}/loopback"),
    Code("loopback", "leads to `loop`", 302, "{short}/loop"),
    Code(
        "foreign",
        "a hop to a host that is not the marketplace's",
        302,
        to="http://foreign.example/product/{ids}",  # never resolves (RFC 2606)
    ),
    Code(
        "lookalike",
        "a hop to a host whose name only ends like the marketplace's",
        302,
        to="{lookalike}/product/{ids}",
    ),
    Code("scheme", "a hop to a file: address", 302, "file:///etc/passwd"),
    Code("nowhere", "a 302 without a Location", 302),
    Code("home", "ends on the shop's front page, which is no product", 302, "{shop}/"),
    Code(
        "unknown",
        "an HTML page that says nothing of where it leads",
        head="<title>Mở ứng dụng</title>",
    ),
    Code(
        "signin",
        "a login page whose canonical link is a product",
        to="{shop}/product/{ids}",
        head=_CANONICAL + '</head><body><input type="password">',
    ),
    Code("check", "a 302 to a human check on the same host", 302, "/verify/captcha"),
    Code("gone", "404", 404, head=_NOT_FOUND),
    Code("broken", "500", 500, head=_NOT_FOUND),
    Code(SLOW, "no answer in any reasonable time", 404, head=_NOT_FOUND),
    Code("big", "five megabytes of HTML that lead nowhere", head="<!--{filler}-->"),
    Code(
        "dlink7Qx",
        "a login link (every code that starts with dlink): must never be opened",
        404,
        head=_NOT_FOUND,
    ),
)

_BY_NAME: Final = {row.code: row for row in CODES}


def code_named(code: str) -> Code:
    """Return the row for `code`. An unknown code is gone."""
    if found := _ANY_PRODUCT.fullmatch(code):
        to = f"{{shop}}/opaanlp/{found[1]}/{found[2]}?{{stamp}}"
        return Code("", "one 302 to that product", 302, to)
    return _BY_NAME.get(code, _BY_NAME["gone"])
