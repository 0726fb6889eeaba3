"""The marketplace's eight countries, and the origins that a configuration may use instead.

Hosts are held as origins (scheme, host and port). A configured origin replaces the market's own in
recognised links, in canonical links and in requests; only cookies may be of both (`cookie_hosts`).
A list of additional hosts was rejected: a test could reach the real portal by mistake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from smartlinkd.marketplace.urls import host_and_port, origin


@dataclass(frozen=True, slots=True)
class Market:
    """The addresses of one market. Origins have no trailing slash and no default port."""

    code: str
    shop_url: str
    portal_url: str
    short_urls: tuple[str, ...]
    currency: str  # ISO 4217; all money is in whole units of it
    image_url: str  # the folder of pictures, which are named by a hash; ends with a slash
    open_api_url: str  # the official Affiliate Open API, a whole URL


# Short hosts that every market shares.
_SHARED_SHORT_HOSTS = ("shope.ee", "shp.ee")

_SHOP_HOSTS = {
    "vn": ("shopee.vn", "VND"),
    "th": ("shopee.co.th", "THB"),
    "id": ("shopee.co.id", "IDR"),
    "my": ("shopee.com.my", "MYR"),
    "sg": ("shopee.sg", "SGD"),
    "ph": ("shopee.ph", "PHP"),
    "tw": ("shopee.tw", "TWD"),
    "br": ("shopee.com.br", "BRL"),
}

MARKET_CODES = tuple(_SHOP_HOSTS)

SESSION_COOKIES: Final = ("SPC_EC", "SPC_ST")
"""The cookies of every market that hold a login. The shop gives visitors the value `-`."""


def market(
    code: str,
    *,
    portal_url: str = "",
    shop_url: str = "",
    short_urls: Sequence[str] = (),
    open_api_url: str = "",
) -> Market:
    """Return the market of `code` ("vn", "th", …), with the given addresses in place of its own.

    An empty address keeps the market's own. Raises `ValueError` for one that is no
    origin, but for `open_api_url`, which is a whole URL.
    """
    host, currency = _SHOP_HOSTS[code]
    own_short = (f"s.{host}", f"{code}.shp.ee", *_SHARED_SHORT_HOSTS)
    return Market(
        code=code,
        shop_url=origin(shop_url or f"https://{host}"),
        portal_url=origin(portal_url or f"https://affiliate.{host}"),
        short_urls=tuple(origin(url) for url in short_urls)
        or tuple(f"https://{short}" for short in own_short),
        currency=currency,
        image_url=f"https://down-{code}.img.susercontent.com/file/",
        open_api_url=open_api_url or f"https://open-api.affiliate.{host}/graphql",
    )


def cookie_hosts(market: Market) -> tuple[str, ...]:
    """Return the hosts whose cookies make a session, the portal's before the shop's.

    The market's own hosts are among them even where others are configured: the owner of a daemon
    that works with a sandbox still exports cookies from the real portal.
    """
    standard = _SHOP_HOSTS[market.code][0]
    portal, _ = host_and_port(market.portal_url)
    shop, _ = host_and_port(market.shop_url)
    return tuple(dict.fromkeys((portal, f"affiliate.{standard}", shop, standard)))
