"""Sources that need no browser: the official Open API, and an estimate service."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from smartlinkd.conversion.sources import READS_AT_ONCE, MaySend, SubIds
from smartlinkd.errors import Refused
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.open_api import OpenApi
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)


class OpenApiLinks:
    """Makes links by the official API, one call a link. The calls of a submit run concurrently."""

    needs_cookie = False

    def __init__(self, api: OpenApi) -> None:
        self._api = api

    async def create(
        self,
        cookie: Cookie | None,  # noqa: ARG002 - the API knows its owner by other means
        products: Sequence[Product],
        sub_ids: SubIds,
        may_send: MaySend,
    ) -> Sequence[Row]:
        """See `LinkSource`. A refused call costs its own link only, unless all were refused."""
        may_send()
        rows: list[Row | None] = [None] * len(products)
        refusals: list[Refused] = []

        async def make(index: int, product: Product) -> None:
            try:
                rows[index] = await self._api.short_link(product, sub_ids)
            except Refused as refusal:
                refusals.append(refusal)

        async with trio.open_nursery() as nursery:
            for index, product in enumerate(products):
                nursery.start_soon(make, index, product)
        if len(refusals) == len(products):
            raise refusals[0]
        for refusal in refusals:
            logger.warning("a link was not made: %s", refusal)
        return [row or UNKNOWN_ROW for row in rows]


class ApiProducts:
    """Reads product data by a call without a session: the Open API's, or an estimate service's."""

    needs_cookie = False
    at_once = READS_AT_ONCE

    def __init__(self, read: Callable[[Product], Awaitable[ProductData | None]]) -> None:
        self._read = read

    async def read(
        self,
        cookie: Cookie | None,  # noqa: ARG002 - the call needs none
        product: Product,
    ) -> ProductData | None:
        """See `ProductSource`."""
        return await self._read(product)
