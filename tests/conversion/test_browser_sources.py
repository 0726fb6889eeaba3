"""Links through the browser: what nobody wants any more by then does not reach the portal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.conversion.browser_sources import BrowserLinks, BrowserProducts, PortalTabs
from smartlinkd.conversion.sources import READ_WITHIN
from smartlinkd.errors import Unavailable
from smartlinkd.marketplace.errors import HumanCheck, PortalSilent, ProductsDown
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market
from smartlinkd.vault.cookie import Cookie, parse_cookie

if TYPE_CHECKING:
    from smartlinkd.browser.actor import Browser

COOKIE = parse_cookie("SPC_U=1001; SPC_EC=first")


class PlayedPage:
    """A page at the portal, whose form is ready; notes what it is told to do. A product's own page
    comes with another status, or (0) does not come."""

    def __init__(self, status: int = 200, of_product: int = 200) -> None:
        self.status = status
        self.of_product = of_product
        self.here = "https://portal.test/"
        self.told: list[str] = []
        self.other_urls: tuple[str, ...] = ()

    async def goto(self, url: str) -> str:
        self.told.append("goto")
        if "product_offer" in url:
            self.status = self.of_product
            if not self.status:
                raise NavigationFailed(url, "net::ERR_CONNECTION_RESET")
        return url

    async def url(self) -> str:
        return self.here

    @asynccontextmanager
    async def responses(
        self, *_parts: str, **_more: str
    ) -> AsyncIterator[trio.MemoryReceiveChannel[CapturedResponse]]:
        send, receive = trio.open_memory_channel[CapturedResponse](0)
        with send, receive:
            yield receive

    async def evaluate(
        self, _function: str, what: str, *_: object, deadline: float
    ) -> dict[str, object]:
        assert deadline < READ_WITHIN
        self.told.append(what)
        return {"url": "https://portal.test/", "status": self.status, "form": "ready"}


class PlayedBrowser:
    """A browser that has to open its page first, and has to have a slot for that."""

    def __init__(self, status: int = 200, of_product: int = 200, busy_for: float = 0) -> None:
        self.page = PlayedPage(status, of_product)
        self.busy_for = busy_for

    async def use(self, place: TabSpec, job: Callable[[Any], Awaitable[object]]) -> object:
        await trio.sleep(self.busy_for)
        page: Any = self.page
        await place.open_tab(page)
        return await job(page)


def not_seen(_: Cookie) -> None:
    raise AssertionError


def tabs_of(browser: PlayedBrowser) -> PortalTabs:
    return PortalTabs(cast("Browser", browser), market("vn"), not_seen)


def links_of(browser: PlayedBrowser, method: Literal["form", "fetch"] = "form") -> BrowserLinks:
    return BrowserLinks(tabs_of(browser), method=method)


def products_of(browser: PlayedBrowser, method: Literal["fetch", "page"]) -> BrowserProducts:
    return BrowserProducts(tabs_of(browser), method=method, default_cap=1)


@pytest.mark.parametrize("method", ["form", "fetch"])
@pytest.mark.parametrize(("asked_before", "told"), [(0, []), (1, ["goto", "look"])])
async def test_refused_submit_sends_nothing(
    method: Literal["form", "fetch"], asked_before: int, told: list[str]
) -> None:
    browser = PlayedBrowser()
    links = links_of(browser, method)
    answers: list[HumanCheck | None] = [None] * asked_before + [HumanCheck()]

    def may_send() -> None:
        if (check := answers.pop(0)) is not None:
            raise check

    with pytest.raises(HumanCheck):
        await links.create(COOKIE, [Product(7, 1)], (), may_send)
    assert browser.page.told == told


async def test_tab_with_a_human_check_is_not_navigated() -> None:
    """The check may come between two jobs; the page that would be loaded shows none."""
    browser = PlayedBrowser()
    browser.page.here = "https://portal.test/verify/captcha"
    with pytest.raises(HumanCheck):
        await links_of(browser).create(COOKIE, [Product(7, 1)], (), lambda: None)
    with pytest.raises(HumanCheck):
        await products_of(browser, "page").read(COOKIE, Product(7, 1))
    assert browser.page.told == []


async def test_check_that_a_tab_shows_is_reported_at_once() -> None:
    places: list[TabSpec] = []
    seen: list[Cookie] = []

    class Warm:
        async def use(self, place: TabSpec, _job: object) -> None:
            places.append(place)

    browser: Any = Warm()
    tabs = PortalTabs(browser, market("vn"), seen.append)
    await BrowserLinks(tabs, method="form").create(COOKIE, [Product(7, 1)], (), lambda: None)
    for method in ("fetch", "page"):
        await BrowserProducts(tabs, method=method, default_cap=1).read(COOKIE, Product(7, 1))
    assert [place.tab for place in places] == ["links", "products", "product page"]
    for beside, url in [
        (False, "https://portal.test/offer/custom_link"),
        (False, "https://portal.test/buyer/login"),
        (True, "https://ads.test/verify/captcha"),
        (True, "https://shopee.vn/"),
    ]:
        assert not places[0].invalidates(url, beside)
    assert seen == []
    assert places[0].invalidates("https://portal.test/verify/captcha?from=offer", False)
    assert places[0].invalidates("https://shopee.vn/verify/captcha", True)
    assert seen == [COOKIE, COOKIE]


@pytest.mark.parametrize("method", ["fetch", "page"])
async def test_missing_page_for_product_data_is_products_down(
    method: Literal["fetch", "page"],
) -> None:
    """Or each of them would have it loaded again."""
    browser = PlayedBrowser(status=503)
    products = products_of(browser, method)
    with pytest.raises(ProductsDown, match="HTTP 503"):
        await products.read(COOKIE, Product(7, 1))


@pytest.mark.parametrize("status", [0, 429, 503])
async def test_missing_page_of_a_product_is_products_down(
    status: int, autojump_clock: MockClock
) -> None:
    browser = PlayedBrowser(of_product=status)
    products = products_of(browser, "page")
    with pytest.raises(ProductsDown, match=f"HTTP {status}" if status else "CONNECTION_RESET"):
        await products.read(COOKIE, Product(7, 1))


@pytest.mark.parametrize("method", ["fetch", "page"])
@pytest.mark.parametrize(("busy_for", "error"), [(READ_WITHIN + 1, Unavailable), (1, PortalSilent)])
async def test_busy_browser_is_unavailable_and_slow_page_is_silent(
    method: Literal["fetch", "page"],
    busy_for: float,
    error: type[Exception],
    autojump_clock: MockClock,
) -> None:
    browser = PlayedBrowser(busy_for=busy_for)
    browser.page.goto = hang  # type: ignore[assignment,method-assign]
    products = products_of(browser, method)
    with pytest.raises(error):
        await products.read(COOKIE, Product(7, 1))
    assert trio.current_time() == READ_WITHIN


async def hang(_url: str) -> str:
    await trio.sleep_forever()
    raise AssertionError
