"""Links by a Playwright script that opens a page for each request, as most scripts do.

The browser and its context, with the account's cookies, stay open. Requests run concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from playwright.async_api import BrowserContext

from bench.peers.playwright_kept import KeptPage, Method, Row

AT_ONCE: Final = 8
"""The most pages that are open at the same time. Each has a renderer process."""


class PagePerRequest:
    """One account. A page is opened for each request."""

    def __init__(self, context: BrowserContext, portal: str, method: Method) -> None:
        self._context = context
        self._portal = portal
        self._method = method
        self._room = asyncio.Semaphore(AT_ONCE)

    async def convert(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        """Return the portal's rows for the links, in their order."""
        async with self._room:
            page = await KeptPage.open(self._context, self._portal, self._method)
            try:
                return await page.convert(links, sub_ids)
            finally:
                await page.close()

    async def settle(self) -> None:
        """Do nothing: no page stays open."""

    async def close(self) -> None:
        """Do nothing: no page stays open."""
