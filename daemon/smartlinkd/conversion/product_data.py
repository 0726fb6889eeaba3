"""Product data of converted links: read once, cached, and never at the cost of a link.

A source of product data can be slow, silent or refuse, while the link that waits for the data is
made already. So a link waits for a bounded time, and goes without data whatever the reason. After
a refusal or a silence nothing is read with that cookie for a while. Only a human check pauses the
account, and with it the links.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import trio
from prometheus_client import Histogram

from smartlinkd.conversion.account import MAX_ACCOUNTS, digest_of
from smartlinkd.conversion.account_queue import AccountQueue
from smartlinkd.conversion.cache import SingleFlight, TTLCache
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.sources import ProductSource
from smartlinkd.errors import Refused
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    HumanCheck,
    OpenApiBusy,
    OpenApiRefused,
    PortalSilent,
    ProductsDown,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.products import ProductData
from smartlinkd.metrics import timed
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

_REFUSES_PRODUCTS: Final = (
    ProductsRefused,
    SessionLost,
    AccountFrozen,
    OpenApiRefused,
    OpenApiBusy,
)
"""Refusals that the next product would meet as well."""


class ProductReader:
    """Reads product data from a source, as far as the accounts' queues let it."""

    def __init__(
        self,
        source: ProductSource | None,
        queue_of: Callable[[Cookie | None], AccountQueue],
        limits: ConversionLimits,
        nursery: trio.Nursery,
        seconds: Histogram,
    ) -> None:
        """Without a `source` there is no data. `seconds` observes how long reads take."""
        self._source = source
        self._queue_of = queue_of
        self._limits = limits
        self._seconds = seconds
        self._reads = SingleFlight[tuple[str | None, Product], ProductData | None](nursery)
        self._paused = TTLCache[str | None, bool](
            ttl_s=limits.refusal_pause_s, max_size=MAX_ACCOUNTS
        )
        self.cached = TTLCache[tuple[str | None, Product], ProductData](
            ttl_s=limits.product_ttl_s, max_size=limits.max_cached_products
        )

    async def read(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        """Return the product's data, or None. Raises no `Refused`: it would cost a link."""
        source = self._source
        if source is None or (source.needs_cookie and cookie is None):
            return None
        own = cookie if source.needs_cookie else None
        key = (digest_of(own), product)
        cached = self.cached.get(key)
        if cached is not None:
            return cached
        with trio.move_on_after(self._limits.product_wait_s) as wait:
            return await self._reads.run(key, partial(self._read, source, own, product))
        if wait.cancelled_caught:
            logger.warning(
                "no data of product %s within %g s", product, self._limits.product_wait_s
            )
        return None

    def resume(self) -> None:
        """Read again with every cookie, whatever a source has refused."""
        self._paused.clear()

    async def _read(
        self, source: ProductSource, cookie: Cookie | None, product: Product
    ) -> ProductData | None:
        queue = self._queue_of(cookie)
        try:
            data = await queue.read_product(partial(self._read_in_turn, source, cookie, product))
        except HumanCheck:
            queue.pause(cookie)
        except (PortalSilent, ProductsDown) as silence:
            self._paused.put(digest_of(cookie), True, ttl_s=self._limits.silence_pause_s)
            logger.warning("product data is not read for a minute: %s", silence)
        except _REFUSES_PRODUCTS as refusal:
            self._paused.put(digest_of(cookie), True)
            queue.end_reads()  # they would be refused as well
            logger.warning("product data is not read for a while: %s", refusal)
        except Refused as refusal:
            logger.warning("no data of product %s: %s", product, refusal)
        else:
            if data is not None:
                self.cached.put((digest_of(cookie), product), data)
            return data
        return None

    async def _read_in_turn(
        self, source: ProductSource, cookie: Cookie | None, product: Product
    ) -> ProductData | None:
        if self._paused.get(digest_of(cookie)):
            return None
        with timed(self._seconds):
            return await source.read(cookie, product)
