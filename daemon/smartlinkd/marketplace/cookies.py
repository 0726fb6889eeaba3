"""Where the cookies of a header string belong in a browser's cookie jar.

A header string has lost the domains that its cookies came with. In the owner's browser the session
cookies sit on the shop's domain, below which the portal is, and the portal sets its own csrftoken.
Putting them on the portal's host alone logs the account out at the first redirect to the shop.
"""

from __future__ import annotations

import ipaddress
from typing import TypedDict
from urllib.parse import urlsplit

from smartlinkd.marketplace.markets import Market
from smartlinkd.vault.cookie import Cookie

_CSRF = "csrftoken"
# Of one cookie that does not keep what its name promises Chromium refuses the whole set. It knows
# these prefixes in any case (RFC 6265bis, section 4.1.3).
_HOST_ONLY = "__host-"
_SECURE = ("__host-", "__secure-", "__http-")
_NO_SCRIPT = ("__http-", "__host-http-")


class JarCookie(TypedDict, total=False):
    """One cookie as CDP takes it (Network.CookieParam). Without `domain` it is host-only."""

    name: str
    value: str
    url: str
    domain: str
    path: str
    secure: bool
    httpOnly: bool


def jar(market: Market, cookie: Cookie) -> list[JarCookie]:
    """The cookies of an account's header string, placed for this market's shop and portal."""
    domain_of_both = _domain_of_both(market)
    apart = _host(market.portal_url) != _host(market.shop_url)
    placed = []
    for name, value in cookie.pairs:
        domain = None if name.lower().startswith(_HOST_ONLY) else domain_of_both
        placed.append(_cookie(name, value, market.shop_url, domain))
        if apart and (domain is None or name == _CSRF):
            placed.append(_cookie(name, value, market.portal_url))
    return placed


def _cookie(name: str, value: str, url: str, domain: str | None = None) -> JarCookie:
    prefix = name.lower()
    secure = url.startswith("https://") or prefix.startswith(_SECURE)
    cookie = JarCookie(name=name, value=value, url=url, path="/", secure=secure)
    if prefix.startswith(_NO_SCRIPT):
        cookie["httpOnly"] = True
    if domain is not None:
        cookie["domain"] = domain
    return cookie


def _domain_of_both(market: Market) -> str | None:
    """The shop's domain, when it is one that can have cookies and the portal is below it."""
    shop, portal = _host(market.shop_url), _host(market.portal_url)
    try:
        ipaddress.ip_address(shop)
    except ValueError:
        below = portal == shop or portal.endswith(f".{shop}")
        return f".{shop}" if below and "." in shop else None
    return None  # an address has no domain; cookies on it are host-only (RFC 6265, 5.1.3)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
