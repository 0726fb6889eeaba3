"""The marketplace's eight countries, and the origins that a configuration may use instead.

A `Market` holds origins (scheme, host and port), never bare hosts. A configured origin replaces the
market's own everywhere: in recognised links, in canonical links and in requests. A list of
additional hosts was rejected: a test could reach the real portal by mistake.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

# No `xn--` labels: no market has one, and look-alikes in other alphabets are written so.
_LABEL = r"(?!xn--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# RFC 1035 section 2.3.4 allows 253 characters, less the length bytes.
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


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

    An empty address keeps the market's own. Raises `ValueError` for one that is no origin.
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
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{shown}" + (f":{port}" if port not in (None, default) else "")


def is_plain_host(host: str) -> bool:
    """True for a lower-case host name of letters, digits and hyphens, without punycode."""
    return _HOST.fullmatch(host) is not None


def covers(origin_url: str, host: str, port: int | None) -> bool:
    """True if `host` and `port` are the origin's, or `host` is a sub-domain of its host."""
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
