"""Product data: thirteen fields, and how they are read.

Each field is null if it is not known. A field that cannot be read costs that field alone: a product
without a name still has its price. The commission is in whole units of the market's currency:

    platform part = min(price * platform rate, cap)
    seller part   = price * seller rate    (the extra commission, never capped)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from smartlinkd.marketplace import links
from smartlinkd.marketplace.errors import PortalDown, ProductsRefused
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.signs import read_json
from smartlinkd.marketplace.urls import is_web_address
from smartlinkd.marketplace.values import (
    as_text,
    half_up,
    not_negative,
    to_decimal,
    to_int,
    to_percent,
    to_text,
    unpacked,
)

if TYPE_CHECKING:
    from smartlinkd.browser.capture import CapturedResponse


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of the price: 0.045 is 4.5 %."""

    platform: Decimal
    seller: Decimal

    @property
    def text(self) -> str:
        """The sum as a percentage with at most two decimals: "18%", "17.5%"."""
        return f"{as_text((self.platform + self.seller) * 100, places=2)}%"

    @property
    def is_xtra(self) -> bool:
        """True if the seller pays an extra commission."""
        return self.seller > 0


def commission(price: Decimal, rates: Rates, cap: int) -> tuple[int, int]:
    """Return the platform's and the seller's part of the commission of one sale.

    Both are in whole units of the currency, rounded half-up. `cap` bounds the platform's part.
    """
    platform = half_up(min(price * rates.platform, Decimal(cap)))
    return platform, half_up(price * rates.seller)


# The portal's fixed point: one unit of money, and 100 %, are both written as 100000.
_SCALE = Decimal(100000)
# More than any rate, and small enough for a price times this to be rounded (see `values.py`).
_MAX_RATE = Decimal(10)
_REDIRECTS = range(300, 400)
_IMAGE_HASH = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ProductData(BaseModel):
    """The product object of a success entry, in camelCase on the wire.

    Money is in whole units of the market's currency.
    """

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        defer_build=True,
    )

    name: str | None = None
    price: int | None = None
    image: str | None = None
    shop_name: str | None = None
    rating: str | None = None
    sales: int | None = None
    commission: int | None = None
    commission_rate: str | None = None
    seller_commission: int | None = None
    platform_commission: int | None = None
    is_xtra: bool | None = None
    cap: int | None = None
    product_link: str | None = None


FIELD_NAMES = tuple(field.alias or name for name, field in ProductData.model_fields.items())
"""The fields' names on the wire."""
PLACEHOLDER = re.compile(r"\{(item_id|shop_id|url)\}")
"""The placeholders in the address of an estimate service (`third_party.py`)."""


def product_data(
    market: Market,
    *,
    name: object,
    price: Decimal | None,
    image: object,
    shop_name: object,
    rating: Decimal | None,
    sales: int | None,
    rates: Rates | None,
    cap: Decimal | int,
    link: links.Product | None,
) -> ProductData:
    """Return the thirteen fields, rounded, of what a source gives. None is unknown."""
    whole_cap = half_up(Decimal(cap))
    parts = commission(price, rates, whole_cap) if rates and price is not None else None
    return ProductData(
        name=to_text(name),
        price=None if price is None else half_up(price),
        image=_image(image, market),
        shop_name=to_text(shop_name),
        rating=None if rating is None else as_text(rating, places=1),
        sales=sales,
        commission=sum(parts) if parts else None,
        commission_rate=rates.text if rates else None,
        seller_commission=parts[1] if parts else None,
        platform_commission=parts[0] if parts else None,
        is_xtra=rates.is_xtra if rates else None,
        cap=whole_cap,
        product_link=link.url(market) if link else None,
    )


def parse_portal_product(
    response: CapturedResponse, *, asked: links.Product, market: Market, default_cap: int
) -> ProductData | None:
    """Return the product data in an answer of the portal's `/api/v3/offer/product`, or None.

    Raises:
        HumanCheck, SessionLost: as `read_json`.
        ProductsRefused: it is a refusal.
        PortalDown: it is an error, or about another product.
    """
    status = response.status
    try:
        answer = read_json(response)
    except PortalDown:
        if status == 429 or status in _REDIRECTS:
            raise ProductsRefused(f"the portal answered with HTTP {status}") from None
        raise
    code = to_int(answer.get("code"))
    if code not in (None, 0):
        raise PortalDown(f"it has no product data to give, and says code {code}")
    data = unpacked(answer.get("data"))
    card = unpacked(data.get("batch_item_for_item_card_full"))
    if not card:
        return None
    link = link_of(data.get("product_link"), card.get("shopid"), card.get("itemid"), market)
    item_id = card.get("itemid")
    is_other = item_id is not None and to_int(item_id) != asked.item_id
    if is_other or (link is not None and link.item_id != asked.item_id):
        raise PortalDown("it was asked about one product and answered about another")
    detail = unpacked(data.get("commission_rate_detail"))
    cap = _positive(_scaled(detail.get("commission_cap")))
    return product_data(
        market,
        name=card.get("name"),
        price=_portal_price(card),
        image=card.get("image"),
        shop_name=card.get("shop_name"),
        rating=not_negative(to_decimal(unpacked(card.get("item_rating")).get("rating_star"))),
        sales=not_negative(to_int(card.get("historical_sold"))),
        rates=_portal_rates(detail, unpacked(data.get("commission_rate"))),
        cap=default_cap if cap is None else cap,
        link=link,
    )


def _portal_price(card: dict[str, Any]) -> Decimal | None:
    """Return the price; the lowest of its variants if it has no other."""
    prices = (_positive(_scaled(card.get(key))) for key in ("price", "price_min", "price_max"))
    return next((price for price in prices if price is not None), None)


def split_rates(total: Decimal | None, seller: Decimal | None) -> Rates | None:
    """Return both rates from the total and the seller's part in it (None: the seller pays nothing).

    None if the total is unknown, below the seller's part, or above `_MAX_RATE`.
    """
    seller = seller or Decimal(0)
    if total is None or not 0 <= seller <= total <= _MAX_RATE:
        return None
    return Rates(platform=total - seller, seller=seller)


def link_of(link: object, shop_id: object, item_id: object, market: Market) -> links.Product | None:
    """Return the product of a source's link, else of its two numbers, else None."""
    found = links.parse(link, market) if isinstance(link, str) else None
    if isinstance(found, links.Product):
        return found
    shop, item = to_int(shop_id), to_int(item_id)
    if shop is None or item is None or shop <= 0 or item <= 0:
        return None
    return links.Product(shop, item)


def _portal_rates(detail: dict[str, Any], shown: dict[str, Any]) -> Rates | None:
    """Return the rates of `commission_rate_detail`, else those of the strings for people ("2,5%").

    `default_commission_rate` is the total; the seller's part is in it.
    """
    total = _scaled(detail.get("default_commission_rate"))
    if total is not None:
        return split_rates(total, _scaled(detail.get("seller_commission_rate")))
    total = to_percent(shown.get("default_commission_rate"))
    seller = to_percent(shown.get("seller_commission_rate")) or Decimal(0)
    return split_rates(None if total is None else total / 100, seller / 100)


def _scaled(value: object) -> Decimal | None:
    number = to_decimal(value)
    return None if number is None else number / _SCALE


def _positive(value: Decimal | None) -> Decimal | None:
    return value if value is not None and value > 0 else None


def _image(value: object, market: Market) -> str | None:
    # The portal names a picture by its hash; other sources give a URL.
    text = to_text(value)
    if text is None or is_web_address(text):
        return text
    return market.image_url + text if _IMAGE_HASH.fullmatch(text) else None
