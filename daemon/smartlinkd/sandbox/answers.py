"""A product as each of the sandbox's three sources of product data puts it in JSON.

The sources disagree on purpose, as the real ones do: the portal scales money by 100 000 and gives
rates in hundred-thousandths, the Open API scales nothing and gives rates as decimal strings, the
estimate service gives plain whole numbers. Pure functions.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from smartlinkd.sandbox.products import FULL_RATE, Product

_SCALE = 100_000
"""The portal's money: this many for one dong."""

Json = dict[str, Any]


def portal_offer(product: Product, shop_url: str) -> Json:
    """The `data` of `GET /api/v3/offer/product`."""

    def number(value: int) -> int | str:
        return value if product.plain_numbers else str(value)

    card: Json = {
        "itemid": product.item_id,
        "shopid": product.shop_id,
        "name": product.name,
        "price": number(product.price * _SCALE),
        "shop_name": product.shop_name,
    }
    if product.image is not None:
        card["image"] = product.image
    if product.sold is not None:
        # `sold` is the last thirty days: a reader that takes it for the total gets it wrong.
        card |= {"historical_sold": product.sold, "sold": product.sold // 12}
    if product.rating is not None:
        card["item_rating"] = {"rating_star": product.rating}
    rates: Json = {"default_commission_rate": number(product.default_rate)}
    if product.seller_rate is not None:
        rates["seller_commission_rate"] = number(product.seller_rate)
    if product.cap is not None:
        rates["commission_cap"] = number(product.cap * _SCALE)
    return {
        "item_id": product.item_id,
        "batch_item_for_item_card_full": card,
        "product_link": product_link(product, shop_url),
        "commission": dong(product.commission),
        "commission_rate_detail": rates,
        "commission_rate": {
            "default_commission_rate": percent(product.default_rate),
            "seller_commission_rate": percent(product.seller_rate or 0),
            "shopee_commission_rate": percent(product.platform_rate),
            "commission_cap": dong(product.cap or 0),
        },
    }


def open_api_node(product: Product, shop_url: str, offer_link: str) -> Json:
    """One node of the Open API's `productOfferV2`, with every field a query may select."""
    return {
        "itemId": product.item_id,
        "shopId": product.shop_id,
        "productName": product.name,
        "shopName": product.shop_name,
        "productLink": product_link(product, shop_url),
        "offerLink": offer_link,
        "imageUrl": image_url(product),
        "price": str(product.price),
        "priceMin": str(product.price),
        "priceMax": str(product.price),
        "sales": product.sold,
        "ratingStar": None if product.rating is None else str(round(product.rating, 2)),
        "commissionRate": _fraction(product.default_rate),
        "sellerCommissionRate": (
            None if product.seller_rate is None else _fraction(product.seller_rate)
        ),
        "shopeeCommissionRate": _fraction(product.platform_rate),
        "commission": str(product.commission),
    }


def estimate(product: Product, shop_url: str) -> Json:
    """The third-party estimate service's whole answer: one flat object."""
    return {
        "name": product.name,
        "price": product.price,
        "image": image_url(product),
        "shopName": product.shop_name,
        "rating": product.rating,
        "sales": product.sold,
        "commission": product.commission,
        "commissionRate": f"{_fraction(product.default_rate, of=100)}%",
        "sellerCommission": product.seller_commission,
        "platformCommission": product.platform_commission,
        "isXtra": bool(product.seller_rate),
        "cap": product.cap,
        "productLink": product_link(product, shop_url),
    }


def product_link(product: Product, shop_url: str) -> str:
    """The product's page, in the marketplace's canonical form."""
    return f"{shop_url}/product/{product.shop_id}/{product.item_id}"


def image_url(product: Product) -> str | None:
    """Where the real marketplace keeps its pictures. The sandbox never fetches it."""
    if product.image is None:
        return None
    return f"https://down-vn.img.susercontent.com/file/{product.image}"


def dong(amount: int) -> str:
    """`5100` as the portal shows it: `₫5.100`."""
    return "₫" + f"{amount:,}".replace(",", ".")


def percent(rate: int) -> str:
    """`2500` as the portal shows it: `2,5%`."""
    return _fraction(rate, of=100).replace(".", ",") + "%"


def _fraction(rate: int, *, of: int = 1) -> str:
    """A portal rate as a plain decimal, `18000` → `0.18`, or of 100: `18`."""
    return f"{(Decimal(rate) * of / FULL_RATE).normalize():f}"
