"""An estimate service of somebody else's."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from smartlinkd.marketplace.errors import PortalDown, PortalSilent, ProductsRefused
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.third_party import ThirdParty
from smartlinkd.net.client import HttpClient
from tests.marketplace.lipstick import LIPSTICK

VN = market("vn")
ITEM = Product(88201679, 23456789012)
TEMPLATE = "https://estimates.example/item?shop={shop_id}&item={item_id}&url={url}&{other}"
WHOLE = {**LIPSTICK, "image": "https://x.example/a.jpg", "cap": 40_000}


async def ask(
    answer: object,
    *,
    status: int = 200,
    fields: dict[str, str] | None = None,
    requests: list[httpx.Request] | None = None,
) -> Any:
    def handler(request: httpx.Request) -> httpx.Response:
        (requests if requests is not None else []).append(request)
        if isinstance(answer, str):
            return httpx.Response(status, text=answer)
        return httpx.Response(
            status, text=json.dumps(answer), headers={"Location": "https://evil.example/"}
        )

    async with HttpClient(httpx.MockTransport(handler)) as client:
        return await ThirdParty(client, VN, TEMPLATE, fields or {}).product(ITEM)


async def test_fields_under_our_own_names_are_read() -> None:
    assert (await ask(WHOLE)).model_dump() == WHOLE


async def test_template_is_filled_with_ids_and_sends_no_secret() -> None:
    requests: list[httpx.Request] = []
    await ask(WHOLE, requests=requests)
    assert str(requests[0].url) == (
        "https://estimates.example/item?shop=88201679&item=23456789012"
        "&url=https%3A%2F%2Fshopee.vn%2Fproduct%2F88201679%2F23456789012&{other}"
    )
    assert "cookie" not in requests[0].headers
    assert "authorization" not in requests[0].headers


async def test_fields_at_configured_paths_are_read() -> None:
    answer = {"data": {"item": {"t": "Name", "p": "5.5"}, "name": "not this"}, "name": "nor this"}
    found = await ask(answer, fields={"name": "data.item.t", "price": "data.item.p"})
    assert (found.name, found.price) == ("Name", 6)


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("price", "122200.5", 122_201),
        ("price", -1, None),
        ("price", "many", None),
        ("price", True, None),
        ("rating", 4.86, "4.9"),
        ("rating", None, None),
        ("commissionRate", "17,5 %", "17.5%"),
        ("commissionRate", 17.555, "17.56%"),
        ("commissionRate", "18", "18%"),
        ("commissionRate", "-1%", None),
        ("commissionRate", "high", None),
        ("isXtra", 1, None),
        ("isXtra", False, False),
        ("image", "javascript:alert(1)", None),
        ("image", {"url": "x"}, None),
        ("image", "https://x.example/\ud83d", None),
        ("name", "  ", None),
        ("name", "a\ud83d", "a\ufffd"),
        ("sales", [], None),
        ("productLink", "https://evil.com/product/1/2", WHOLE["productLink"]),
        ("productLink", None, WHOLE["productLink"]),
    ],
)
async def test_field_of_any_value_is_read_or_null(name: str, given: Any, read: object) -> None:
    found = (await ask(WHOLE | {name: given})).model_dump()
    assert found == WHOLE | {name: read}


async def test_estimates_that_do_not_add_up_are_kept() -> None:
    found = await ask({"commission": 7, "sellerCommission": 1, "platformCommission": 1})
    assert found.commission == 7
    assert found.price is None


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({}, 200),
        ({"error": "unknown item"}, 200),
        ({"name": None}, 200),
        (WHOLE, 404),
        (WHOLE, 410),
    ],
)
async def test_product_that_the_service_does_not_know_has_no_data(
    answer: object, status: int
) -> None:
    assert await ask(answer, status=status) is None


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        *((WHOLE, status, ProductsRefused) for status in (401, 403, 429)),
        *((WHOLE, status, PortalDown) for status in (302, 500)),
        *((text, 200, PortalDown) for text in ("<html>", "", "[]", "[" * 100_000)),
    ],
)
async def test_unusable_answer_raises_its_error_after_one_request(
    answer: object, status: int, error: type[Exception]
) -> None:
    requests: list[httpx.Request] = []
    with pytest.raises(error):
        await ask(answer, status=status, requests=requests)
    assert len(requests) == 1  # also for a redirect


async def test_silent_service_raises_portal_silent(autojump_clock: trio.testing.MockClock) -> None:
    async def silent(request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    async with HttpClient(httpx.MockTransport(silent)) as client:
        with pytest.raises(PortalSilent, match=r"the estimate service .*within 8 seconds"):
            await ThirdParty(client, VN, TEMPLATE, {}).product(ITEM)
