from __future__ import annotations

from smartlinkd.sandbox.products import (
    portal_offer,
    product_of,
)

SHOP = "https://shop.example"


def test_any_item_is_always_the_same_product() -> None:
    drawn = [product_of(item_id) for item_id in range(1, 2_000)]

    assert drawn == [product_of(item_id) for item_id in range(1, 2_000)]
    assert all(product.platform_rate >= 1_000 and product.price > 0 for product in drawn)
    assert len({product.shop_id for product in drawn}) > 1_900


def test_generated_product_is_stable_over_releases() -> None:
    product = product_of(5)

    assert (product.price, product.shop_id, product.default_rate) == (2_669_000, 740937579, 15_000)


def test_missing_fields_of_a_product_are_not_in_the_answer() -> None:
    bare = portal_offer(product_of(25550001112), SHOP)["batch_item_for_item_card_full"]
    capless = portal_offer(product_of(19876543210), SHOP)["commission_rate_detail"]
    sellerless = portal_offer(product_of(18123456789), SHOP)["commission_rate_detail"]

    assert not {"image", "item_rating", "historical_sold"} & set(bare)
    assert "commission_cap" not in capless
    assert "seller_commission_rate" not in sellerless
