"""Links by a Playwright script that opens a page for each request, as most scripts do it.

The browser and its context, with the account's cookies, are kept; the page is not. So there is
nothing to be found out about results that stay, and several requests may be under way at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from playwright.async_api import BrowserContext

from bench.peers.playwright_kept import Kept, Method, Row


class Each:
    """One account, without a page."""

    def __init__(self, context: BrowserContext, portal: str, method: Method) -> None:
        self._context = context
        self._portal = portal
        self._method = method

    async def convert(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        """The portal's rows for the links, in their order."""
        async with await Kept.open(self._context, self._portal, self._method) as page:
            return await page.convert(links, sub_ids)
