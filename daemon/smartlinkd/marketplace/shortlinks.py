"""Resolve short links to the products they stand for, without the owner's cookie.

Strangers choose what is fetched here. So every hop must be an address of the market (`follow` in
`links.py`), and hops, bytes and seconds are bounded. The first product address is the result; its
page is never fetched. Only `CONCURRENT_HOPS` to one host run at once, so that a silent host delays
only its own short links.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urljoin

import trio

from smartlinkd.marketplace.links import MarketPage, NotALink, Product, Short, follow
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.short_pages import read_short_page, refresh_target
from smartlinkd.marketplace.signs import sign_of_url
from smartlinkd.marketplace.urls import host_and_port
from smartlinkd.net.client import HttpClient, NoAnswer, Reply

MAX_HOPS = 5  # real chains have one to three
MAX_BODY = 64 * 1024  # bytes; a page that leads on says so at its top
CONCURRENT_HOPS = 8  # to one host
HOP_DEADLINE = 8.0  # seconds, from the name lookup to the last byte
DEADLINE = 40.0  # seconds for all hops and their waits; a request has a minute

_REDIRECTS = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Nothing is known of the link because of `why`. It may work later."""

    why: str


class ShortLinks:
    """Resolves the short links of a market."""

    def __init__(self, http: HttpClient, market: Market) -> None:
        self._http = http
        self._market = market
        # Each short host has its own, and the shop with its sub-domains. `follow` allows no others.
        self._of_shop = trio.CapacityLimiter(CONCURRENT_HOPS)
        self._of_short_hosts = {
            host_and_port(url): trio.CapacityLimiter(CONCURRENT_HOPS) for url in market.short_urls
        }

    async def resolve(self, short: Short) -> Product | NotALink | Unresolved:
        """Return the product that a short link stands for.

        `NotALink` if it leads to none, `Unresolved` if nothing is known of it. No network fault
        raises. Raises `NoThread` if no thread can be started for the name or the certificates.
        """
        with trio.move_on_after(DEADLINE):
            return await self._follow(short.url)
        return Unresolved(f"no answer within {DEADLINE:g} seconds")

    async def _follow(self, here: str) -> Product | NotALink | Unresolved:
        seen = {here}
        for _ in range(MAX_HOPS):
            limiter = self._of_short_hosts.get(host_and_port(here), self._of_shop)
            try:
                async with limiter:
                    reply = await self._http.request(
                        "GET", here, deadline=HOP_DEADLINE, max_body=MAX_BODY
                    )
            except NoAnswer as silence:
                return Unresolved(str(silence))
            found = _next(reply, here, self._market)
            if not isinstance(found, MarketPage):
                return found
            if found.url in seen:
                return NotALink("its redirects go round in a loop")
            here = found.url
            seen.add(here)
        return NotALink(f"it redirects more than {MAX_HOPS} times")


def _next(reply: Reply, here: str, market: Market) -> Product | MarketPage | NotALink | Unresolved:
    """Return where the answer of `here` leads."""
    if reply.status in _REDIRECTS:
        if "location" not in reply.headers:
            return NotALink("it redirects, but not to any address")
        return _follow_target(reply.headers["location"], here, market)
    if reply.status == 200:
        return _next_in_page(reply, here, market)
    if reply.status in (404, 410):
        return NotALink("there is nothing behind it")
    return Unresolved(f"HTTP {reply.status}")


def _next_in_page(
    reply: Reply, here: str, market: Market
) -> Product | MarketPage | NotALink | Unresolved:
    page = read_short_page(reply.text)
    about = [_follow_target(target, here, market) for target in page.is_about]
    # A login or check page may name the product that it stands in the way of.
    if page.asks_for_password or sign_of_url(here) or _LOGIN_OR_CHECK in about:
        return _LOGIN_OR_CHECK
    refresh = refresh_target(reply.headers.get("refresh", ""))
    targets = [*([refresh] if refresh else []), *page.goes_to]
    places = [_follow_target(target, here, market) for target in targets]
    # A page may name an app's address before the web's, so a product counts before the first.
    products = (place for place in places or about if isinstance(place, Product))
    found = next(products, None) or next(iter(places), None)
    if found is not None:
        return found
    if _is_on_short_host(here, market):
        return Unresolved("its page is not understood")
    return NotALink("it leads to a page that is no product")


_LOGIN_OR_CHECK = Unresolved("the shop wants a login or a person before it says more")


def _follow_target(
    target: str, here: str, market: Market
) -> Product | MarketPage | NotALink | Unresolved:
    """Return where `target`, as it is written in the answer of `here`, leads."""
    try:
        url = urljoin(here, target)
    except ValueError:
        url = target  # not a URL, and `follow` says so
    place = follow(url, market)
    if isinstance(place, MarketPage) and sign_of_url(place.url):
        return _LOGIN_OR_CHECK
    # `follow` allows only codes on a short host, so a login page there is no link to it.
    if isinstance(place, NotALink) and _is_on_short_host(url, market) and sign_of_url(url):
        return _LOGIN_OR_CHECK
    return place


def _is_on_short_host(url: str, market: Market) -> bool:
    return host_and_port(url) in map(host_and_port, market.short_urls)
