"""Links by a Playwright script that opens a page for each request, as most scripts do it.

The browser and its context, with the account's cookies, are kept; the page is not. Several requests
may be under way at once, as many as the machine bears.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from playwright.async_api import BrowserContext

from bench.peers.playwright_kept import Kept, Method, Row

AT_ONCE: Final = 8
"""Pages open at the same time. Each has a process of its own."""


class Each:
    """One account, without a page."""

    def __init__(self, context: BrowserContext, portal: str, method: Method) -> None:
        self._context = context
        self._portal = portal
        self._method = method
        self._room = asyncio.Semaphore(AT_ONCE)

    async def convert(self, links: Sequence[str], sub_ids: Sequence[str]) -> list[Row]:
        """The portal's rows for the links, in their order."""
        async with self._room:
            page = await Kept.open(self._context, self._portal, self._method)
            try:
                return await page.convert(links, sub_ids)
            finally:
                await page.close()

    async def settle(self) -> None:
        """Nothing stays."""

    async def close(self) -> None:
        """The same."""
