"""Place the cookies of a header string in a browser.

A header string has lost the domains of its cookies. In the owner's browser the session cookies are
on the shop's domain, which the portal is below, and the portal sets a csrftoken of its own. On the
portal's host alone they would log the account out at the first redirect to the shop.
"""

from __future__ import annotations

from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.urls import host_and_port, is_at_or_below, is_ip
from smartlinkd.vault.cookie import Cookie

_CSRF = "csrftoken"
# Chromium refuses the whole set for one cookie that breaks the promise of its name. It knows these
# prefixes in any case (RFC 6265bis, section 4.1.3).
_HOST_ONLY = "__host-"
_SECURE = ("__host-", "__secure-", "__http-")
_NO_SCRIPT = ("__http-", "__host-http-")


CookieParam = dict[str, str | bool]
"""CDP's Network.CookieParam. A cookie without `domain` is host-only."""


def browser_cookies(market: Market, cookie: Cookie) -> list[CookieParam]:
    """Return an account's cookies, placed for this market's shop and portal."""
    (shop, _), (portal, _) = host_and_port(market.shop_url), host_and_port(market.portal_url)
    # The cookies of an address are host-only (RFC 6265, section 5.1.3), and those of a bare name.
    can_share = is_at_or_below(portal, shop) and "." in shop and not is_ip(shop)
    shared_domain = f".{shop}" if can_share else None
    placed = []
    for name, value in cookie.pairs:
        domain = None if name.lower().startswith(_HOST_ONLY) else shared_domain
        placed.append(_cookie(name, value, market.shop_url, domain))
        if portal != shop and (domain is None or name == _CSRF):
            placed.append(_cookie(name, value, market.portal_url))
    return placed


def _cookie(name: str, value: str, url: str, domain: str | None = None) -> CookieParam:
    prefix = name.lower()
    secure = url.startswith("https://") or prefix.startswith(_SECURE)
    cookie: CookieParam = {"name": name, "value": value, "url": url, "path": "/", "secure": secure}
    if prefix.startswith(_NO_SCRIPT):
        cookie["httpOnly"] = True
    if domain is not None:
        cookie["domain"] = domain
    return cookie
