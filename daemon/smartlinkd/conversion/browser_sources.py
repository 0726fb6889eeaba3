"""Sources that use the affiliate portal in a tab, in the session of the owner's cookie."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

import trio

from smartlinkd.browser.actor import Browser
from smartlinkd.browser.errors import BrowserFailed, Disconnected, NavigationFailed
from smartlinkd.browser.page import Page
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.conversion.sources import READ_WITHIN, READS_AT_ONCE, MaySend, SubIds
from smartlinkd.errors import BrowserEnded, Unavailable, UpstreamFailed
from smartlinkd.marketplace import portal
from smartlinkd.marketplace.answers import Row
from smartlinkd.marketplace.cookies import browser_cookies
from smartlinkd.marketplace.errors import (
    HumanCheck,
    MarketplaceFailed,
    PortalChanged,
    PortalDown,
    PortalSilent,
    ProductsDown,
    ProductsRefused,
)
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.products import ProductData
from smartlinkd.marketplace.signs import is_check_in_frame, sign_of_url
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

R = TypeVar("R")

ReportHumanCheck = Callable[[Cookie], None]
"""Called with the cookie of a tab that shows a human check. Never waits."""


class PortalTabs:
    """Tabs at the portal, in the sessions of cookies."""

    def __init__(self, browser: Browser, market: Market, report_check: ReportHumanCheck) -> None:
        self.market = market
        self._browser = browser
        self._report_check = report_check

    async def use(
        self,
        cookie: Cookie | None,
        tab: str,
        open_tab: Callable[[Page], Awaitable[None]],
        job: Callable[[Page], Awaitable[R]],
        *,
        at_once: int,
        is_navigated: bool = False,
    ) -> R:
        """Run `job` in the tab `tab` of a cookie.

        The browser's failures become refusals that say what a client can do.
        """
        assert cookie is not None  # noqa: S101 - the service checks `needs_cookie`

        def is_invalidating(url: str, is_other: bool) -> bool:
            is_check = (
                is_check_in_frame(url, self.market) if is_other else sign_of_url(url) is HumanCheck
            )
            if is_check:
                self._report_check(cookie)
            return is_check

        cookies = partial(browser_cookies, self.market, cookie)
        spec = TabSpec(
            key=cookie.digest,
            cookies=cookies,
            tab=tab,
            open_tab=open_tab,
            invalidates=is_invalidating,
            concurrency=at_once,
            is_navigated=is_navigated,
        )
        try:
            return await self._browser.use(spec, job)
        except Disconnected as end:
            logger.info("the browser ended while it worked: %s", end)
            raise BrowserEnded(
                "the browser ended in the midst of it, and is started again; try again shortly"
            ) from None
        except BrowserFailed as failure:
            raise UpstreamFailed(f"{failure}; try again shortly") from None


class BrowserLinks:
    """Makes links on the portal's custom-link page, by its form or by a call from the page."""

    needs_cookie = True

    def __init__(self, tabs: PortalTabs, *, method: Literal["form", "fetch"]) -> None:
        self._tabs = tabs
        self._submit = portal.submit_form if method == "form" else portal.submit_fetch

    async def create(
        self,
        cookie: Cookie | None,
        products: Sequence[Product],
        sub_ids: SubIds,
        may_send: MaySend,
    ) -> Sequence[Row]:
        """See `LinkSource`."""
        market = self._tabs.market

        async def open_tab(page: Page) -> None:
            may_send()
            await portal.open_links_page(page, market)

        async def create(page: Page) -> list[Row]:
            may_send()
            return await self._submit(page, market, products, sub_ids)

        return await self._tabs.use(cookie, "links", open_tab, create, at_once=1)


class BrowserProducts:
    """Reads product data by a call from a portal page (`fetch`), or by opening the product's."""

    needs_cookie = True

    def __init__(
        self, tabs: PortalTabs, *, method: Literal["fetch", "page"], default_cap: int
    ) -> None:
        self._tabs = tabs
        self._default_cap = default_cap
        self._is_fetching = method == "fetch"
        self.at_once = READS_AT_ONCE if self._is_fetching else 1

    async def read(self, cookie: Cookie | None, product: Product) -> ProductData | None:
        """See `ProductSource`."""
        market = self._tabs.market
        begun = trio.Event()
        reading = portal.read_product_fetch if self._is_fetching else portal.read_product_page

        async def open_tab(page: Page) -> None:
            begun.set()
            try:
                await portal.open_links_page(page, market)
            except (PortalDown, PortalChanged, NavigationFailed) as failed:
                raise ProductsDown(str(failed)) from None  # the next read would open it again

        async def read(page: Page) -> ProductData | MarketplaceFailed | None:
            begun.set()
            # Returned, not raised: an error that leaves a page has its whole context closed, and
            # these say nothing against the page.
            try:
                return await reading(page, market, product, default_cap=self._default_cap)
            except (ProductsRefused, ProductsDown, PortalDown, PortalSilent) as failed:
                return failed

        found: ProductData | MarketplaceFailed | None = None
        with trio.move_on_after(READ_WITHIN) as reading_time:
            found = await self._tabs.use(
                cookie,
                "products" if self._is_fetching else "product page",
                open_tab,
                read,
                at_once=self.at_once,
                is_navigated=not self._is_fetching,
            )
        if reading_time.cancelled_caught:
            if not begun.is_set():  # no fault of the marketplace
                raise Unavailable("the browser has no hand free for product data", retry_after=1)
            raise PortalSilent(f"no product data within {READ_WITHIN:g} seconds")
        if isinstance(found, MarketplaceFailed):
            raise found
        return found
