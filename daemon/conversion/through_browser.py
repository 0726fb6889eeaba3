"""Links and product data through the portal, in the owner's own session."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal

from daemon.browser.actor import Browser
from daemon.browser.contexts import Place
from daemon.browser.page import Page
from daemon.marketplace import portal
from daemon.marketplace.answers import UNKNOWN_ROW, Row
from daemon.marketplace.codes import FailCode
from daemon.marketplace.errors import NotThere, PortalError
from daemon.marketplace.jar import jar
from daemon.marketplace.links import Product, parse
from daemon.marketplace.markets import Market
from daemon.marketplace.products import ProductData
from daemon.vault.cookie import Cookie

logger = logging.getLogger(__name__)

READS_AT_ONCE = 3
"""Products read at the same time from one page, about as many as its owner would have open."""


class BrowserLinks:
    """Makes links on the portal's custom-link page, by its form or by the page's own request."""

    needs_cookie = True

    def __init__(
        self, browser: Browser, market: Market, *, method: Literal["form", "fetch"]
    ) -> None:
        self._browser = browser
        self._market = market
        self._method = method

    async def create(
        self, cookie: Cookie | None, products: Sequence[Product], sub_ids: tuple[str, ...]
    ) -> Sequence[Row]:
        """See `LinkSource`. A call that GraphQL refuses as a whole gives unknown errors."""
        links = [product.url(self._market) for product in products]

        async def submit(page: Page) -> list[Row]:
            if self._method == "form":
                return await portal.submit_form(page, self._market, links, sub_ids)
            return await portal.submit_fetch(page, self._market, links, sub_ids)

        try:
            rows = await self._browser.use(place(cookie, self._market, "links", at_once=1), submit)
        except PortalError as error:
            logger.warning("the portal refused a submit of %d links: %s", len(links), error.detail)
            return [UNKNOWN_ROW] * len(products)
        return [self._proven(row, product) for row, product in zip(rows, products, strict=True)]

    def _proven(self, row: Row, product: Product) -> Row:
        """The row, unless its long link is another product's: rows carry no other name."""
        if row.fail_code is not FailCode.SUCCESS:
            logger.info("the portal's code for %s is %s", product, row.portal_code)
            return row
        if row.long_link is None:
            return row
        found = parse(row.long_link, self._market)
        if isinstance(found, Product) and found.item_id != product.item_id:
            logger.error("the portal answered %s with the link of %s", product, found)
            return UNKNOWN_ROW
        return row


class BrowserProducts:
    """Reads product data by the portal's own call, from its page (`fetch`) or by opening one."""

    needs_cookie = True

    def __init__(
        self,
        browser: Browser,
        market: Market,
        *,
        method: Literal["fetch", "page"],
        default_cap: int,
    ) -> None:
        self._browser = browser
        self._market = market
        self._method = method
        self._default_cap = default_cap

    async def read(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        """See `ProductSource`."""
        fetch = self._method == "fetch"
        reading = portal.read_product_fetch if fetch else portal.read_product_page

        async def read(page: Page) -> ProductData | None:
            # In here, since an error that leaves the page spoils it, and this one says nothing
            # against the page.
            try:
                return await reading(page, self._market, product, default_cap=self._default_cap)
            except NotThere:
                return None

        tab, at_once = ("products", READS_AT_ONCE) if fetch else ("product page", 1)
        return await self._browser.use(place(cookie, self._market, tab, at_once=at_once), read)


def place(cookie: Cookie | None, market: Market, tab: str, *, at_once: int) -> Place:
    """The tab `tab` in the context of an account's cookie, at the portal."""
    assert cookie is not None  # noqa: S101 - `needs_cookie` says so, and the desk sees to it

    async def open_tab(page: Page) -> None:
        await portal.open_links_page(page, market)

    return Place(cookie.digest, jar(market, cookie), tab, open_tab, at_once)
