"""Contract of the fake and the real Chromium: the outcomes of faults of the portal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.marketplace import portal
from smartlinkd.marketplace.errors import (
    HumanCheck,
    MarketplaceFailed,
    PortalDown,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.marketplace.links import Product
from smartlinkd.sandbox.products import product_of
from smartlinkd.sandbox.session import affiliate_id

if TYPE_CHECKING:
    from smartlinkd.browser.page import Page
    from tests.fakes.conftest import Subject

ACCOUNT = "4711"
ITEM = 500_000_001
CAP = 40_000

PAGES: dict[str, type[Exception]] = {
    "page_500": PortalDown,
    "page_reset": NavigationFailed,
    "page_login_redirect": SessionLost,
    "page_login_script": SessionLost,
    "page_login_in_place": SessionLost,
    "page_captcha": HumanCheck,
}
ANSWERS: dict[str, type[Exception]] = {
    "500": PortalDown,
    "reset": PortalDown,
    "html": SessionLost,
    "truncated": PortalDown,
    "login_redirect": SessionLost,
    "captcha": HumanCheck,
    "logged_out": SessionLost,
    "human_check": HumanCheck,
}
TIMES = {"reset": None}
"""The number of times that a fault strikes; None for always. Chromium retries a reset call on each
reused connection."""
REFUSED = {"html", "login_redirect", "logged_out"}
"""Faults that do not end the session when product data is read."""


def product() -> Product:
    sold = product_of(ITEM)
    return Product(sold.shop_id, sold.item_id)


async def links_page(subject: Subject) -> Page:
    page = await subject.page(ACCOUNT)
    await portal.open_links_page(page, subject.market)
    return page


@pytest.mark.parametrize(("fault", "error"), PAGES.items())
async def test_page_fault_raises_its_error(
    subject: Subject, fault: str, error: type[Exception]
) -> None:
    page = await subject.page(ACCOUNT)
    subject.portal.arm(fault, times=1, account=ACCOUNT)
    with pytest.raises(error):
        await portal.open_links_page(page, subject.market)


@pytest.mark.parametrize("method", [portal.submit_form, portal.submit_fetch])
async def test_links_have_affiliate_id_and_sent_sub_ids(subject: Subject, method: object) -> None:
    page = await links_page(subject)
    for sub_ids in (["one", "", "three"], []):  # the second finds what the first has left
        (row,) = await method(page, subject.market, [product()], sub_ids)  # type: ignore[operator]
        assert row.fail_code == 0
        assert f"an_{affiliate_id(ACCOUNT)}" in row.long_link
        places = [*sub_ids, *[""] * (5 - len(sub_ids))]
        assert subject.portal.submits[-1].sub_ids == (tuple(places),)


@pytest.mark.parametrize(("fault", "error"), ANSWERS.items())
@pytest.mark.parametrize("method", [portal.submit_form, portal.submit_fetch])
async def test_submit_fault_raises_its_error(
    subject: Subject, method: object, fault: str, error: type[Exception]
) -> None:
    page = await links_page(subject)
    subject.portal.arm(f"submit_{fault}", times=TIMES.get(fault, 1), account=ACCOUNT)
    with pytest.raises(error):
        await method(page, subject.market, [product()], [])  # type: ignore[operator]


@pytest.mark.parametrize("method", [portal.submit_form, portal.submit_fetch])
async def test_reset_of_reused_connection_is_retried(subject: Subject, method: object) -> None:
    page = await links_page(subject)
    subject.portal.arm("submit_reset", times=1, account=ACCOUNT)
    assert len(await method(page, subject.market, [product()], [])) == 1  # type: ignore[operator]
    assert len(subject.portal.submits) == 2


@pytest.mark.parametrize(("fault", "error"), ANSWERS.items())
async def test_product_fault_raises_its_error(
    subject: Subject, fault: str, error: type[Exception]
) -> None:
    page = await links_page(subject)
    assert await portal.read_product_fetch(page, subject.market, product(), default_cap=CAP)
    subject.portal.arm(f"product_{fault}", times=TIMES.get(fault, 1), account=ACCOUNT)
    with pytest.raises(MarketplaceFailed) as raised:
        await portal.read_product_fetch(page, subject.market, product(), default_cap=CAP)
    assert type(raised.value) is (ProductsRefused if fault in REFUSED else error)


async def test_human_check_page_sends_no_request(subject: Subject) -> None:
    page = await links_page(subject)
    await page.goto(f"{subject.market.portal_url}/verify/captcha")
    with pytest.raises(HumanCheck):
        await portal.submit_fetch(page, subject.market, [product()], [])
    with pytest.raises(HumanCheck):
        await portal.read_product_fetch(page, subject.market, product(), default_cap=CAP)
    assert not subject.portal.submits


async def test_alert_is_dismissed(subject: Subject) -> None:
    subject.portal.arm("page_alert", times=1, account=ACCOUNT)
    page = await links_page(subject)
    assert len(await portal.submit_form(page, subject.market, [product()], [])) == 1
