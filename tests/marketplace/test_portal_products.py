"""Product data through the portal, on a tab of a few lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing

from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.marketplace import portal
from smartlinkd.marketplace.errors import (
    HumanCheck,
    PortalDown,
    PortalSilent,
    ProductsDown,
    ProductsRefused,
)
from tests.marketplace.tabs import (
    CAPTCHA,
    LOGIN,
    PAGE,
    PRODUCT_CALL,
    Tab,
    answered,
    called,
    look,
    raised,
    read_fetch,
    read_page,
)

PRODUCT_BODY = json.dumps(
    {"code": 0, "data": {"batch_item_for_item_card_full": {"name": "Son", "price": "12220000000"}}}
)


async def test_fetched_product_leaves_the_page_where_it_is() -> None:
    tab = Tab(call=called(PRODUCT_BODY, url=PRODUCT_CALL))
    assert (await read_fetch(tab)).price == 122_200
    assert tab.calls[0][:3] == ("GET", PRODUCT_CALL, None)
    assert tab.visited == []


async def test_product_page_reads_the_answer_to_its_own_call() -> None:
    others = [
        answered(url=PRODUCT_CALL.replace("101", "1010"), body="{}"),
        answered(url=PRODUCT_CALL.replace("product?", "product/list?"), body="{}"),
    ]
    good = answered(url=PRODUCT_CALL + "&x=1", body=PRODUCT_BODY)
    tab = Tab(answers=[(0, response) for response in (*others, good)])
    assert (await read_page(tab)).price == 122_200
    assert tab.visited == ["https://affiliate.shopee.vn/offer/product_offer/101"]
    assert tab.followed[0] == ("GET", "/api/v3/offer/product")


@pytest.mark.parametrize("read", [read_fetch, read_page])
async def test_data_of_another_product_raises_portal_down(read: Any) -> None:
    body = PRODUCT_BODY.replace('"name"', '"itemid": 102, "name"')
    response = answered(url=PRODUCT_CALL, body=body)
    tab = Tab(call=called(body, url=PRODUCT_CALL), answers=[(0, response)])
    await raised(PortalDown, read(tab))


def without_data(status: int = 0, **more: Any) -> Tab:
    """A tab whose page loses the answer to its call."""
    lost = answered(status=status, url=PRODUCT_CALL, lost="net::ERR_CONNECTION_RESET")
    return Tab(answers=[(0, lost)], **more)


@pytest.mark.parametrize(
    ("tab", "error"),
    [
        (Tab(lands=LOGIN), ProductsRefused),
        (Tab(lands=CAPTCHA), HumanCheck),
        (Tab(looks=[look("none", status=403, json='{"error": 90309999}')]), HumanCheck),
        (Tab(fails=NavigationFailed(PAGE, "net::ERR_CONNECTION_RESET")), ProductsDown),
        (without_data(), PortalDown),
        (without_data(status=401), ProductsRefused),
        # It left during its call.
        (without_data(looks=[look("none", url=CAPTCHA)]), HumanCheck),
        (without_data(looks=[look("none", url=LOGIN)]), ProductsRefused),
    ],
)
async def test_product_page_without_data_raises_by_its_state(
    tab: Tab, error: type[Exception], autojump_clock: trio.testing.MockClock
) -> None:
    await raised(error, read_page(tab))
    assert trio.current_time() < 1


async def test_product_page_without_call_raises_portal_silent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await raised(PortalSilent, read_page(Tab()))
    assert trio.current_time() == pytest.approx(portal.PRODUCT_TIMEOUT, abs=0.1)
