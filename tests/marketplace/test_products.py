"""Product data out of the portal's answer, field by field."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, ProductsRefused, SessionLost
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.products import Rates, commission, parse_portal_product
from tests.marketplace.lipstick import LIPSTICK

VN = market("vn")
CALL = "https://affiliate.shopee.vn/api/v3/offer/product?item_id=23456789012"
ASKED = Product(88201679, 23456789012)
CAP = 30_000  # what a configuration would give; no answer here has it

CARD: dict[str, Any] = {
    "itemid": 23456789012,
    "shopid": 88201679,
    "name": "Son Kem Lì",
    "image": "vn-11134207-7r98o-lkj3m2x8q1f5a2",
    "price": "12220000000",
    "historical_sold": 15234,
    "sold": 1269,
    "item_rating": {"rating_star": 4.8},
    "shop_name": "Cánh Hồng Official",
}
DETAIL = {
    "seller_commission_rate": "13500",
    "default_commission_rate": "18000",
    "commission_cap": "4000000000",
}
SHOWN = {"default_commission_rate": "18%", "seller_commission_rate": "13,5%"}
LINK = "https://shopee.vn/product/88201679/23456789012"


def answer(
    card: dict[str, Any] | None = None,
    detail: dict[str, Any] | None = None,
    shown: dict[str, Any] | None = None,
    **data: Any,
) -> dict[str, Any]:
    """A good answer with changes; a field changed to `...` is missing."""

    def changed(fields: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
        return {k: v for k, v in (fields | (changes or {})).items() if v is not ...}

    whole = {
        "batch_item_for_item_card_full": changed(CARD, card),
        "product_link": LINK + "?utm_source=an_1",
        "commission_rate_detail": changed(DETAIL, detail),
        "commission_rate": changed(SHOWN, shown),
    }
    return {"code": 0, "msg": "success", "data": changed(whole, data)}


def read(found: object, *, status: int = 200, code: str = "vn") -> Any:
    response = CapturedResponse(status, CALL, "application/json", json.dumps(found))
    return parse_portal_product(response, asked=ASKED, market=market(code), default_cap=CAP)


def test_product_dumps_its_thirteen_fields() -> None:
    assert read(answer()).model_dump() == {
        **LIPSTICK,
        "image": "https://down-vn.img.susercontent.com/file/vn-11134207-7r98o-lkj3m2x8q1f5a2",
        "cap": 40_000,
    }


def test_product_numbers_as_strings_or_numbers_are_the_same() -> None:
    as_numbers = answer(
        {
            "price": 12_220_000_000,
            "historical_sold": "15234",
            "item_rating": {"rating_star": "4.8"},
        },
        {key: int(value) for key, value in DETAIL.items()},
    )
    assert read(as_numbers) == read(answer())


@pytest.mark.parametrize(
    ("card", "detail", "name", "value"),
    [
        ({"name": ...}, {}, "name", None),
        ({"name": ""}, {}, "name", None),
        ({"name": 5}, {}, "name", None),
        ({"name": " a "}, {}, "name", "a"),
        ({"name": "a\ud83d"}, {}, "name", "a\ufffd"),
        ({"shop_name": "\ude00"}, {}, "shop_name", "\ufffd"),
        ({"image": ...}, {}, "image", None),
        ({"image": ""}, {}, "image", None),
        ({"image": "a/../b"}, {}, "image", None),
        ({"image": "javascript:x"}, {}, "image", None),
        ({"image": "https://"}, {}, "image", None),
        ({"image": "https://x.example/\ud83d"}, {}, "image", None),
        ({"image": "https://x.example/a.jpg"}, {}, "image", "https://x.example/a.jpg"),
        ({"shop_name": None}, {}, "shop_name", None),
        ({"item_rating": ...}, {}, "rating", None),
        ({"item_rating": None}, {}, "rating", None),
        ({"item_rating": {"rating_star": None}}, {}, "rating", None),
        ({"item_rating": {"rating_star": -1}}, {}, "rating", None),
        ({"item_rating": {"rating_star": 5}}, {}, "rating", "5"),
        ({"item_rating": {"rating_star": 5.0}}, {}, "rating", "5"),
        ({"item_rating": {"rating_star": 4.95}}, {}, "rating", "5"),
        ({"item_rating": {"rating_star": 4.876543209876543}}, {}, "rating", "4.9"),
        ({"item_rating": {"rating_star": 0}}, {}, "rating", "0"),
        ({"historical_sold": ...}, {}, "sales", None),
        ({"historical_sold": -1}, {}, "sales", None),
        ({"historical_sold": 0}, {}, "sales", 0),
        ({"historical_sold": 1_250_000}, {}, "sales", 1_250_000),
        ({"price": ...}, {}, "price", None),
        ({"price": "-100000"}, {}, "price", None),
        ({"price": "0"}, {}, "price", None),
        ({"price": "150000"}, {}, "price", 2),
        ({"price": "149999"}, {}, "price", 1),
        ({}, {"commission_cap": ...}, "cap", CAP),
        ({}, {"commission_cap": None}, "cap", CAP),
        ({}, {"commission_cap": 0}, "cap", CAP),
        ({}, {"commission_cap": "1500000000"}, "cap", 15_000),
        ({}, {"default_commission_rate": "17550"}, "commission_rate", "17.55%"),
        ({}, {"default_commission_rate": "17500"}, "commission_rate", "17.5%"),
        ({}, {"seller_commission_rate": "0"}, "is_xtra", False),
        ({}, {"seller_commission_rate": "1"}, "is_xtra", True),
    ],
)
def test_unreadable_field_leaves_the_others(
    card: dict[str, Any], detail: dict[str, Any], name: str, value: object
) -> None:
    found, usual = read(answer(card, detail)), read(answer())
    assert getattr(found, name) == value
    untouched = {"name", "image", "shop_name", "rating", "sales", "product_link"} - {name}
    for other in untouched:
        assert getattr(found, other) == getattr(usual, other)


NO_PRICE: list[object] = [..., None, "", 0, "0", -1, "-100000", "n/a", {}]
PRICE = CARD["price"]


@pytest.mark.parametrize(
    ("price", "lowest", "highest"),
    [
        *((price, PRICE, "99990000000") for price in NO_PRICE),
        (None, int(PRICE), "99990000000"),
        *((None, lowest, PRICE) for lowest in NO_PRICE),
        (PRICE, "100000", "99990000000"),
    ],
)
def test_product_price_is_the_first_of_price_lowest_and_highest(
    price: object, lowest: object, highest: object
) -> None:
    card = {"price": price, "price_min": lowest, "price_max": highest}
    assert read(answer(card)) == read(answer())
    whole = {key: value for key, value in (CARD | card).items() if value is not ...}
    packed_card = json.dumps(whole)
    assert read(answer(batch_item_for_item_card_full=packed_card)) == read(answer())


def packed(value: object, *how: str) -> object:
    for step in how:
        value = json.dumps(value) if step == "text" else [value]
    return value


PACKED = [
    ("text",),
    ("list",),
    ("text", "text"),
    ("list", "text"),
    ("text", "list"),
    ("text", "list", "text"),
]


@pytest.mark.parametrize("how", PACKED, ids="-".join)
@pytest.mark.parametrize("what", ["data", "batch_item_for_item_card_full", "commission_rate"])
def test_product_with_a_packed_part_is_the_same(what: str, how: tuple[str, ...]) -> None:
    usual = answer()
    holder = usual if what == "data" else usual["data"]
    holder[what] = packed(holder[what], *how)
    assert read(usual) == read(answer())


@pytest.mark.parametrize(
    "card", ["", "null", "[]", "{}", "{", "5", "x", "[" * 100_000, "9" * 5_000, [], [{}, {}], 5]
)
def test_card_that_cannot_be_read_is_no_product(card: object) -> None:
    assert read(answer(batch_item_for_item_card_full=card)) is None


UNKNOWN_RATES = (None, None, None, None)
CONTRADICTORY = [
    {"default_commission_rate": "5000"},  # less than the seller's part of it
    {"seller_commission_rate": "-1"},
    {"default_commission_rate": "-5"},
    {"default_commission_rate": "1000001"},  # ten times the price, and more
]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer({}, {"seller_commission_rate": ...}), (0, 21_996, "18%", False)),
        (answer({}, {"seller_commission_rate": None}), (0, 21_996, "18%", False)),
        (answer({}, {"default_commission_rate": "13500"}), (16_497, 0, "13.5%", True)),
        (answer({}, dict.fromkeys(DETAIL, ...)), (16_497, 5_499, "18%", True)),  # by their text
        (answer({"price": None}), (None, None, "18%", True)),
        (answer(commission_rate_detail=None, commission_rate=None), UNKNOWN_RATES),
        *((answer({}, detail), UNKNOWN_RATES) for detail in CONTRADICTORY),
    ],
)
def test_rates_of_seller_and_platform_are_read_or_not_known(
    given: object, expected: tuple[object, ...]
) -> None:
    found = read(given)
    parts = (found.seller_commission, found.platform_commission)
    assert (*parts, found.commission_rate, found.is_xtra) == expected
    assert found.commission == (None if None in parts else sum(parts))
    assert found.name == CARD["name"]


@pytest.mark.parametrize("link", [..., None, "", 5, "https://evil.com/product/1/2", LINK])
def test_product_link_is_always_canonical(link: object) -> None:
    assert read(answer(product_link=link)).product_link == LINK


@pytest.mark.parametrize("shop_id", [..., None, 0, -1, "x"])
def test_product_without_shop_id_has_no_link(shop_id: object) -> None:
    assert read(answer({"shopid": shop_id}, product_link=None)).product_link is None


OTHER_IDS: list[object] = [5, "5", "x", "", [], 0]


@pytest.mark.parametrize(
    "about_another",
    [
        *(answer({"itemid": other}, product_link=None) for other in OTHER_IDS),
        answer({"itemid": ...}, product_link="https://shopee.vn/product/88201679/5"),
        answer(product_link="https://shopee.vn/product/88201679/5"),
        answer(batch_item_for_item_card_full=json.dumps(CARD | {"itemid": 5}), product_link=None),
    ],
)
def test_answer_about_another_product_raises_portal_down(about_another: object) -> None:
    with pytest.raises(PortalDown, match="about another"):
        read(about_another)


@pytest.mark.parametrize("item_id", [..., None, "23456789012"])
def test_answer_without_item_id_is_accepted(item_id: object) -> None:
    assert read(answer({"itemid": item_id})) == read(answer())


ABSURD = ("9e20", 9e20, "9" * 21, f"{'9' * 21}.{'9' * 18}", 10**22, "1e-20", f"0.{'9' * 38}")


@pytest.mark.parametrize("number", ABSURD)
@pytest.mark.parametrize("rate", [*ABSURD, "18000"])
def test_absurd_number_is_read_or_null(number: object, rate: object) -> None:
    card = {"price": number, "historical_sold": number, "item_rating": {"rating_star": number}}
    rates = dict.fromkeys(DETAIL, rate) | {"commission_cap": number}
    found = read(answer(card, rates))
    assert found.name == CARD["name"]
    assert found.model_dump_json()
    shown = dict.fromkeys(SHOWN, f"{rate}%")
    assert read(answer(card, dict.fromkeys(DETAIL, ...), shown)).name == CARD["name"]


def test_money_of_another_market_is_in_its_whole_units() -> None:
    # 12.34 and 0.05 + 0.10 of it: 0.617 and 1.234.
    detail = {"default_commission_rate": "15000", "seller_commission_rate": "10000"}
    found = read(answer({"price": "1234000"}, detail), code="br")
    assert found.price == 12
    assert (found.platform_commission, found.seller_commission, found.commission) == (1, 1, 2)
    assert found.image == "https://down-br.img.susercontent.com/file/" + CARD["image"]


@pytest.mark.parametrize(
    "found",
    [
        {"code": 0, "data": None},
        {"code": 0, "data": {}},
        {"code": 0, "data": {"batch_item_for_item_card_full": None}},
        {"data": []},
        {},
    ],
)
def test_answer_without_product_is_none(found: object) -> None:
    assert read(found) is None


@pytest.mark.parametrize(
    ("error", "status", "found"),
    [
        (SessionLost, 401, {"code": 401}),
        (SessionLost, 200, {"is_login": False, "error": 90309999}),
        (ProductsRefused, 429, {"code": 429}),
        (ProductsRefused, 302, {}),
        *((HumanCheck, status, {"error": 90309999}) for status in (200, 403, 429)),
        (PortalDown, 500, {}),
        (PortalDown, 200, {"code": 10001, "data": None}),
    ],
)
def test_answer_without_product_raises_its_error(
    error: type[Exception], status: int, found: object
) -> None:
    with pytest.raises(error):
        read(found, status=status)


def rates(platform: str, seller: str) -> Rates:
    return Rates(platform=Decimal(platform), seller=Decimal(seller))


@pytest.mark.parametrize(
    ("price", "given", "cap", "parts", "text"),
    [
        # Both parts end on half a unit, and each goes up by itself.
        (1_500, ("0.033", "0.007"), 40_000, (50, 11, 61), "4%"),
        # The cap bounds the platform's part alone.
        (1_000_000, ("0.05", "0.5"), 15_000, (15_000, 500_000, 515_000), "55%"),
        (1_000_000, ("0.05", "0"), 50_000, (50_000, 0, 50_000), "5%"),
        (1_000_000, ("0.05", "0"), 50_001, (50_000, 0, 50_000), "5%"),
        (1_000_000, ("0.05", "0"), 0, (0, 0, 0), "5%"),
        (0, ("0.05", "0.05"), 40_000, (0, 0, 0), "10%"),
    ],
)
def test_commission_of_worked_example_is_exact(
    price: int, given: tuple[str, str], cap: int, parts: tuple[int, int, int], text: str
) -> None:
    both = rates(*given)
    found = commission(Decimal(price), both, cap)
    assert (*found, sum(found)) == parts
    assert both.text == text
