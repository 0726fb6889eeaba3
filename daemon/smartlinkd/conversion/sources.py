"""Protocols of the sources that the conversion service uses: of links, and of product data.

`app/components.py` chooses their implementations by the configuration. What else a second
marketplace has to offer: "Changing something" in docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie

READS_AT_ONCE = 3
"""Products read at the same time for an account: about as many as its owner would have open."""

READ_WITHIN = 9.0
"""Seconds for reading a product, opening its page included. A link waits longer than that
(`ConversionLimits.product_wait_s`), or nobody would notice that a source is silent."""

SubIds = tuple[str, ...]
"""The owner's labels of sales. An empty one keeps the position of the next."""

MaySend = Callable[[], None]
"""Called before anything goes upstream, which may be long after the work has begun: the browser may
have been starting. Raises `HumanCheck` if the account was paused meanwhile."""


class LinkSource(Protocol):
    """Makes affiliate links."""

    needs_cookie: bool
    """True if links are made in the session of a cookie. Else `cookie` is None."""

    async def create(
        self,
        cookie: Cookie | None,
        products: Sequence[Product],
        sub_ids: SubIds,
        may_send: MaySend,
    ) -> Sequence[Row]:
        """Return one row a product, in their order.

        Raises what `may_send` raises, and `Refused` if there is no row at all.
        """


class ProductSource(Protocol):
    """Reads product and commission data."""

    needs_cookie: bool
    at_once: int
    """Reads that run at the same time for one account. One more would wait inside the source, and
    its wait would count as the source's silence."""

    async def read(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        """Return the data, or None if the source has none. Ends within `READ_WITHIN`.

        Raises:
            PortalSilent: no answer came in time.
            ProductsRefused: the source refuses.
            HumanCheck: the source wants a person.
            Refused: anything else went wrong.
        """
