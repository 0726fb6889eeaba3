"""Product data: the figures of an entry's `product`, and null for missing data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal

pytestmark = pytest.mark.chromium

FIGURES = (
    "price",
    "rating",
    "sales",
    "commissionRate",
    "sellerCommission",
    "platformCommission",
    "commission",
)
PRODUCTS = {
    23456789012: (122_200, "4.8", 15_234, "18%", 16_497, 5_499, 21_996),
    17788990011: (84_600_000, "5", 37, "4%", 0, 40_000, 40_000),
    21334455667: (5_290_000, "4.9", 2_481, "10%", 158_700, 40_000, 198_700),
    19876543210: (1_890_000, "4.7", 8_805, "5.5%", 28_350, 40_000, 68_350),
    18123456789: (99_000, "4.6", 64_120, "6%", 0, 5_940, 5_940),
    20202020202: (289_000, "4.9", 5_512, "17.55%", 37_570, 13_150, 50_720),
    24680246802: (1_349_000, "5", 912, "8%", 53_960, 40_000, 93_960),
    16001600160: (1_500, "4.5", 120_000, "4%", 11, 50, 61),
    26262626262: (500_000, "4.4", 3_300, "0%", 0, 0, 0),
}
"""Products of the sandbox with their figures, computed by hand.

Both parts of item 16001600160 end in a half, 10.5 and 49.5, and each is rounded up.
"""

UNKNOWN_FIELDS = 25550001112
"""An item for which the sandbox has no image, no rating and no sales."""
NO_DATA = 900_000_210
"""An item for which the sandbox has no product data."""


async def test_product_has_the_figures_of_the_portal(daemon: Daemon, portal: Portal) -> None:
    account = portal.account()
    links = {portal.link(item): item for item in PRODUCTS}
    mapping = (await daemon.convert(*links, account=account)).json()["mapping"]
    found = {
        item: tuple(mapping[link]["product"][name] for name in FIGURES)
        for link, item in links.items()
    }
    assert found == PRODUCTS
    entries = {link: portal.entry(item, account) for link, item in links.items()}
    assert mapping == entries


async def test_field_that_is_not_known_is_null_alone(daemon: Daemon, portal: Portal) -> None:
    link = portal.link(UNKNOWN_FIELDS)
    answer = await daemon.convert(link, account=portal.account())
    product = answer.json()["mapping"][link]["product"]
    unknown = {name for name, value in product.items() if value is None}
    assert unknown == {"image", "rating", "sales"}
    assert (product["price"], product["commission"]) == (35_000, 1_050)


async def test_product_data_that_is_not_to_be_had_is_null_and_the_links_stay(
    daemon: Daemon, portal: Portal
) -> None:
    account, item = portal.account(), portal.item()
    links = {portal.link(NO_DATA): NO_DATA, portal.link(item): item}
    answer = await daemon.convert(*links, account=account)
    assert answer.json()["mapping"] == {
        portal.link(NO_DATA): portal.entry(NO_DATA, account, product=False),
        portal.link(item): portal.entry(item, account),
    }
