"""What the desk needs from the outside: links made, short links resolved, products read.

The desk knows these three shapes only. Which of them is behind a shape is decided once, in
`smartlinkd/app/components.py`, by the owner's configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.links import Product, Short
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie

READS_AT_ONCE = 3
"""Products read at the same time for an account: about as many as its owner would have open."""

SubIds = tuple[str, ...]
"""What tells the owner's sales apart; an empty one keeps the position of the next."""

MaySend = Callable[[], None]
"""May this still go upstream? Asked before anything does, which may be long after the work has
begun: the browser may have been starting. Raises what has come in the way since, `HumanCheck` for
an account that was paused."""


READ_WITHIN = 9.0
"""Seconds for reading a product, the opening of its page included: less than a link waits for it,
or the silence of a source would be known to nobody."""


class LinkSource(Protocol):
    """Makes affiliate links."""

    needs_cookie: bool
    """Whether links are made in the session of a cookie. If not, `cookie` is None."""

    async def create(
        self,
        cookie: Cookie | None,
        products: Sequence[Product],
        sub_ids: SubIds,
        may_send: MaySend,
    ) -> Sequence[Row]:
        """One row a product, in their order. Raises what `may_send` raises, and `Refused` when
        there is none at all."""


class ProductSource(Protocol):
    """Reads product and commission data."""

    needs_cookie: bool
    at_once: int
    """How many reads run at a time for one account. One more would wait inside the source, and its
    wait would be taken for the source's silence."""

    async def read(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        """The data, or None when the source has none.

        Comes to an end within `READ_WITHIN`. Raises `PortalSilent` when nothing has come by then of
        what was asked, `ProductsRefused` when the source refuses, `HumanCheck` when it wants a
        person, or another `Refused`.
        """


class Resolver(Protocol):
    """Follows short links."""

    async def resolve(self, short: Short) -> Product | int:
        """The product it leads to, or the failCode of the seed that says why there is none."""
