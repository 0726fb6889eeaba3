"""Links through the browser: what nobody wants any more by then does not reach the portal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
import trio

from daemon.browser.contexts import Place
from daemon.conversion.through_browser import BrowserLinks, BrowserProducts
from daemon.marketplace.errors import HumanCheck, ProductsDown
from daemon.marketplace.links import Product
from daemon.marketplace.markets import market
from daemon.marketplace.portal_page import PageResponse
from daemon.vault.cookie import parse_cookie

COOKIE = parse_cookie("SPC_U=1001; SPC_EC=first")


class PlayedPage:
    """A page at the portal, whose form is ready; notes what it is told to do."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.told: list[str] = []

    async def goto(self, url: str) -> str:
        self.told.append("goto")
        return url

    @asynccontextmanager
    async def responses(
        self, *_parts: str, **_more: str
    ) -> AsyncIterator[trio.MemoryReceiveChannel[PageResponse]]:
        send, receive = trio.open_memory_channel[PageResponse](0)
        with send, receive:
            yield receive

    async def evaluate(self, _function: str, what: str, *_: object) -> dict[str, object]:
        self.told.append(what)
        return {"url": "https://portal.test/", "status": self.status, "form": "ready"}


class PlayedBrowser:
    """A browser that has to open its page first."""

    def __init__(self, status: int = 200) -> None:
        self.page = PlayedPage(status)

    async def use(self, place: Place, job: Callable[[Any], Awaitable[object]]) -> object:
        page: Any = self.page
        await place.open_tab(page)
        return await job(page)


@pytest.mark.parametrize("method", ["form", "fetch"])
@pytest.mark.parametrize(("asked_before", "told"), [(0, []), (1, ["goto", "look"])])
async def test_nothing_is_sent_from_when_it_is_not_wanted_any_more(
    method: Literal["form", "fetch"], asked_before: int, told: list[str]
) -> None:
    browser: Any = PlayedBrowser()
    links = BrowserLinks(browser, market("vn"), method=method)
    answers: list[HumanCheck | None] = [None] * asked_before + [HumanCheck()]

    def wanted() -> None:
        if (check := answers.pop(0)) is not None:
            raise check

    with pytest.raises(HumanCheck):
        await links.create(COOKIE, [Product(7, 1)], (), wanted)
    assert browser.page.told == told


@pytest.mark.parametrize("method", ["fetch", "page"])
async def test_a_page_for_product_data_that_does_not_come_is_no_single_products_fault(
    method: Literal["fetch", "page"],
) -> None:
    """Or each of them would have it loaded again."""
    browser: Any = PlayedBrowser(status=503)
    products = BrowserProducts(browser, market("vn"), method=method, default_cap=1)
    with pytest.raises(ProductsDown, match="HTTP 503"):
        await products.read(COOKIE, Product(7, 1))
