from __future__ import annotations

import pytest

from smartlinkd.sandbox.products import (
    estimate,
    open_api_node,
    portal_offer,
    product_of,
)

SHOP = "https://shop.example"


@pytest.mark.parametrize(
    ("item_id", "seller", "platform", "commission"),
    [
        (23456789012, 16_497, 5_499, 21_996),
        (17788990011, 0, 40_000, 40_000),
        (21334455667, 158_700, 40_000, 198_700),
        (16001600160, 11, 50, 61),
        (19876543210, 28_350, 75_600, 103_950),  # no cap
    ],
)
def test_worked_example_earns_its_commission(
    item_id: int, seller: int, platform: int, commission: int
) -> None:
    product = product_of(item_id)

    earned = product.seller_commission, product.platform_commission, product.commission

    assert earned == (seller, platform, commission)


def test_any_item_is_always_the_same_product() -> None:
    drawn = [product_of(item_id) for item_id in range(1, 2_000)]

    assert drawn == [product_of(item_id) for item_id in range(1, 2_000)]
    assert all(product.platform_rate >= 1_000 and product.price > 0 for product in drawn)
    assert len({product.shop_id for product in drawn}) > 1_900


def test_generated_product_is_stable_over_releases() -> None:
    product = product_of(5)

    assert (product.price, product.shop_id, product.default_rate) == (2_669_000, 740937579, 15_000)


def test_portal_answer_scales_money_and_rates() -> None:
    offer = portal_offer(product_of(23456789012), SHOP)

    assert offer["batch_item_for_item_card_full"]["price"] == "12220000000"
    assert offer["commission_rate_detail"] == {
        "seller_commission_rate": "13500",
        "default_commission_rate": "18000",
        "commission_cap": "4000000000",
    }
    assert offer["product_link"] == f"{SHOP}/product/88201679/23456789012"


def test_plain_numbers_are_numbers() -> None:
    offer = portal_offer(product_of(22001100220), SHOP)

    assert offer["batch_item_for_item_card_full"]["price"] == 14_500_000_000
    assert offer["commission_rate_detail"]["default_commission_rate"] == 9_000


def test_missing_fields_of_a_product_are_not_in_the_answer() -> None:
    bare = portal_offer(product_of(25550001112), SHOP)["batch_item_for_item_card_full"]
    capless = portal_offer(product_of(19876543210), SHOP)["commission_rate_detail"]
    sellerless = portal_offer(product_of(18123456789), SHOP)["commission_rate_detail"]

    assert not {"image", "item_rating", "historical_sold"} & set(bare)
    assert "commission_cap" not in capless
    assert "seller_commission_rate" not in sellerless


def test_open_api_answer_scales_nothing() -> None:
    node = open_api_node(product_of(23456789012), SHOP, "https://s.example/x")

    rates = node["commissionRate"], node["sellerCommissionRate"], node["shopeeCommissionRate"]
    assert (node["price"], *rates) == ("122200", "0.18", "0.135", "0.045")


def test_estimate_has_all_thirteen_fields() -> None:
    estimated = estimate(product_of(20202020202), SHOP)

    assert len(estimated) == 13
    assert estimated["commissionRate"] == "17.55%"
