"""Product data for what was converted: read once, remembered, and never at the cost of a link.

The problem: a source of product data can be slow, silent or refuse, while the link that waits for
the data is worth more and has been made already. And who has refused one product, or kept silent
about it, would do the same with the next ones.

The choice: a link waits for its data for a bounded time, and goes without whatever the reason. The
reading itself belongs to all who want the same product of the same cookie. After a refusal or a
silence the readings with a cookie rest, while its links go on; only a human check pauses both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import trio
from prometheus_client import Histogram

from smartlinkd.conversion.line import Line
from smartlinkd.conversion.sharing import Remembered, Shared, whose
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

PRODUCT_PATIENCE: Final = 10.0
"""Seconds that a converted link waits for its product data at the most."""

SILENCE_REST: Final = 60.0
"""Seconds for which no product data is read after its source has not answered."""

_REFUSES_PRODUCTS: Final = (
    ProductsRefused,
    SessionLost,
    AccountFrozen,
    OpenApiRefused,
    OpenApiBusy,
)
"""What says that the next product would be refused as well."""


class ProductReader:
    """Reads product data from a source, at most as often as the accounts' lines let it."""

    def __init__(
        self,
        source: ProductSource | None,
        line_of: Callable[[Cookie | None], Line],
        remembered: Remembered[tuple[str, Product], ProductData],
        nursery: trio.Nursery,
        *,
        rest: float,
        seconds: Histogram,
    ) -> None:
        """Without a `source` there is no data. After a refusal nothing is read for `rest` seconds;
        `seconds` observes how long readings take."""
        self._source = source
        self._line_of = line_of
        self.remembered = remembered
        self._under_way = Shared[tuple[str, Product], ProductData | None](nursery)
        self._rest = rest
        self._seconds = seconds

    async def data(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        """The product's data, or None: whatever happens here costs no link."""
        source = self._source
        if source is None or (source.needs_cookie and cookie is None):
            return None
        own = cookie if source.needs_cookie else None
        key = (whose(own), product)
        remembered = self.remembered.get(key)
        if remembered is not None:
            return remembered
        with trio.move_on_after(PRODUCT_PATIENCE) as patience:
            return await self._under_way.get(key, partial(self._read, source, own, product))
        if patience.cancelled_caught:
            logger.warning("no data of product %s within %g s", product, PRODUCT_PATIENCE)
        return None

    async def _read(
        self, source: ProductSource, cookie: Cookie | None, product: Product
    ) -> ProductData | None:
        line = self._line_of(cookie)
        try:
            data = await line.read_product(
                cookie, partial(self._timed_read, source, cookie, product)
            )
        except HumanCheck as check:
            line.pause(check, cookie)
        except (PortalSilent, ProductsDown) as silence:
            # The next ones would wait as long, and hold up what is worth more.
            line.leave_products_alone(SILENCE_REST, cookie)
            logger.warning("product data is not read for a minute: %s", silence)
        except _REFUSES_PRODUCTS as refusal:
            line.leave_products_alone(self._rest, cookie)
            logger.warning("product data is not read for a while: %s", refusal)
        except Refused as refusal:
            logger.warning("no data of product %s: %s", product, refusal)
        else:
            if data is not None:
                self.remembered.put((whose(cookie), product), data)
            return data
        return None

    async def _timed_read(
        self, source: ProductSource, cookie: Cookie | None, product: Product
    ) -> ProductData | None:
        with timed(self._seconds):
            return await source.read(cookie, product)
