"""Short links over plain HTTP: without the browser, and so without the owner's session."""

from __future__ import annotations

import logging

from smartlinkd.marketplace.answers import FailCode
from smartlinkd.marketplace.links import NotALink, Product, Short
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.shortlinks import HostLimits, resolve
from smartlinkd.net.client import HttpClient

logger = logging.getLogger(__name__)


class HttpResolver:
    """Follows short links with a client that keeps no cookies."""

    def __init__(self, http: HttpClient, market: Market) -> None:
        self._http = http
        self._market = market
        self._lanes = HostLimits(market)

    async def resolve(self, short: Short) -> Product | int:
        """See `Resolver`."""
        found = await resolve(self._http, short, self._market, self._lanes)
        if isinstance(found, Product):
            return found
        logger.info("short link %s: %s", short.url, found.why)
        return FailCode.INVALID_LINK if isinstance(found, NotALink) else FailCode.UNKNOWN
