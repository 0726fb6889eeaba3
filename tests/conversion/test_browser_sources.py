"""Links through the browser: what nobody wants any more by then does not reach the portal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.conversion.browser_sources import BrowserLinks, BrowserProducts, PortalTabs
from smartlinkd.conversion.sources import READ_WITHIN
from smartlinkd.errors import Unavailable
from smartlinkd.marketplace.errors import HumanCheck, PortalSilent, ProductsDown
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market
from smartlinkd.vault.cookie import Cookie, parse_cookie
from tests.marketplace.tabs import CAPTCHA, PAGE, Json, Tab, look

if TYPE_CHECKING:
    from smartlinkd.browser.actor import Browser

COOKIE = parse_cookie("SPC_U=1001; SPC_EC=first")


class PlayedBrowser:
    """A browser that has to open its page first, and has to have a slot for that."""

    def __init__(self, tab: Tab, busy_for: float = 0) -> None:
        self.tab = tab
        self.busy_for = busy_for

    async def use(self, place: TabSpec, job: Callable[[Any], Awaitable[object]]) -> object:
        await trio.sleep(self.busy_for)
        page: Any = self.tab
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
@pytest.mark.parametrize(("asked_before", "visited"), [(0, []), (1, [PAGE])])
async def test_refused_submit_sends_nothing(
    method: Literal["form", "fetch"], asked_before: int, visited: list[str]
) -> None:
    tab = Tab()
    links = links_of(PlayedBrowser(tab), method)
    answers: list[HumanCheck | None] = [None] * asked_before + [HumanCheck()]

    def may_send() -> None:
        if (check := answers.pop(0)) is not None:
            raise check

    with pytest.raises(HumanCheck):
        await links.create(COOKIE, [Product(7, 1)], (), may_send)
    assert (tab.visited, tab.submits, tab.calls) == (visited, [], [])


async def test_tab_with_a_human_check_is_not_navigated() -> None:
    """The check may come between two jobs; the page that would be loaded shows none."""
    browser = PlayedBrowser(Tab(goes=CAPTCHA))
    with pytest.raises(HumanCheck):
        await links_of(browser).create(COOKIE, [Product(7, 1)], (), lambda: None)
    with pytest.raises(HumanCheck):
        await products_of(browser, "page").read(COOKIE, Product(7, 1))
    assert browser.tab.visited == []


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
    for is_other, url in [
        (False, "https://portal.test/offer/custom_link"),
        (False, "https://portal.test/buyer/login"),
        (True, "https://ads.test/verify/captcha"),
        (True, "https://shopee.vn/"),
    ]:
        assert not places[0].invalidates(url, is_other)
    assert seen == []
    assert places[0].invalidates("https://portal.test/verify/captcha?from=offer", False)
    assert places[0].invalidates("https://shopee.vn/verify/captcha", True)
    assert seen == [COOKIE, COOKIE]


@pytest.mark.parametrize(
    ("method", "looks"),
    [
        ("fetch", [look(status=503)]),
        ("page", [look(status=503)]),
        # The product's own page, behind the one that the tab is opened with.
        *(("page", [look(), look(status=status)]) for status in (429, 503)),
    ],
)
async def test_missing_page_for_product_data_is_products_down(
    method: Literal["fetch", "page"], looks: list[Json], autojump_clock: MockClock
) -> None:
    """Or each of them would have it loaded again."""
    products = products_of(PlayedBrowser(Tab(looks=looks)), method)
    with pytest.raises(ProductsDown, match=f"HTTP {looks[-1]['status']}"):
        await products.read(COOKIE, Product(7, 1))


@pytest.mark.parametrize("method", ["fetch", "page"])
@pytest.mark.parametrize(("busy_for", "error"), [(READ_WITHIN + 1, Unavailable), (1, PortalSilent)])
async def test_busy_browser_is_unavailable_and_slow_page_is_silent(
    method: Literal["fetch", "page"],
    busy_for: float,
    error: type[Exception],
    autojump_clock: MockClock,
) -> None:
    never = Tab(fails=NavigationFailed(PAGE, "it was not there"), fails_after=inf)
    products = products_of(PlayedBrowser(never, busy_for), method)
    with pytest.raises(error):
        await products.read(COOKIE, Product(7, 1))
    assert trio.current_time() == READ_WITHIN
