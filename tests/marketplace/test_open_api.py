"""The official Affiliate Open API: signed calls, and what it answers them with."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    OpenApiBusy,
    OpenApiRefused,
    PortalDown,
    PortalSilent,
)
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.open_api import OpenApi, signature
from smartlinkd.net.client import HttpClient
from tests.marketplace.lipstick import LIPSTICK

VN = market("vn")
ITEM = Product(88201679, 23456789012)
SECRET = "S3CRETS3CRET"
SHORT = "https://s.shopee.vn/4AykYR6yxu"
NODE = {
    "itemId": 23456789012,
    "shopId": 88201679,
    "productName": "Son Kem Lì",
    "shopName": "Cánh Hồng Official",
    "productLink": "https://shopee.vn/product/88201679/23456789012",
    "imageUrl": "https://down-vn.img.susercontent.com/file/abc",
    "price": "122200",
    "priceMin": "122200",
    "priceMax": "150000",
    "sales": 15234,
    "ratingStar": "4.8",
    "commissionRate": "0.18",
    "sellerCommissionRate": "0.135",
    "shopeeCommissionRate": "0.045",
}


class Api:
    """Answers every call alike, and keeps the requests."""

    def __init__(self, answer: object, status: int = 200) -> None:
        self.answer = answer
        self.status = status
        self.requests: list[httpx.Request] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if isinstance(self.answer, str):
            return httpx.Response(self.status, text=self.answer)
        return httpx.Response(self.status, text=json.dumps(self.answer))

    @property
    def query(self) -> str:
        return str(json.loads(self.requests[-1].content)["query"])

    async def link(self, *sub_ids: str) -> Row:
        async with HttpClient(httpx.MockTransport(self)) as client:
            return await open_api(client).short_link(ITEM, sub_ids)

    async def product(self) -> Any:
        async with HttpClient(httpx.MockTransport(self)) as client:
            return await open_api(client).product(ITEM, default_cap=30_000)


def open_api(client: HttpClient) -> OpenApi:
    return OpenApi(client, VN, "123456", SecretStr(SECRET), wall_clock=lambda: 1577836800.9)


def errors(code: object, message: str = "no") -> dict[str, Any]:
    return {"errors": [{"message": message, "extensions": {"code": code}}], "data": None}


def made(short: object) -> dict[str, Any]:
    return {"data": {"generateShortLink": {"shortLink": short}}}


def offer(**changes: Any) -> dict[str, Any]:
    node = {key: value for key, value in (NODE | changes).items() if value is not ...}
    return {"data": {"productOfferV2": {"nodes": [node]}}}


def test_signature_of_the_documented_vector_is_exact() -> None:
    body = (
        r'{"query":"{\nbrandOffer{\n    nodes{\n        commissionRate\n        offerName\n'
        r'    }\n}\n}"}'
    )
    expected = "dc88d72feea70c80c52c3399751a7d34966763f51a7f056aa070a5e9df645412"
    assert signature("123456", 1577836800, body, "demo") == expected


async def test_signature_covers_the_bytes_that_are_sent() -> None:
    api = Api(made(SHORT))
    await api.link("a", "b")
    request = api.requests[0]
    assert str(request.url) == "https://open-api.affiliate.shopee.vn/graphql"
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/json"
    signed = hashlib.sha256(b"1234561577836800" + request.content + SECRET.encode()).hexdigest()
    assert request.headers["authorization"] == (
        f"SHA256 Credential=123456, Timestamp=1577836800, Signature={signed}"
    )


async def test_short_link_is_asked_for_with_its_sub_ids() -> None:
    api = Api(made(SHORT + "?lp=aff"))
    assert await api.link("a", "", "c") == Row(SHORT, SHORT, FailCode.SUCCESS)
    assert api.query == (
        'mutation{generateShortLink(input:{originUrl:"https://shopee.vn/product/88201679/'
        '23456789012",subIds:["a", "", "c"]}){shortLink}}'
    )


NO_SHORT_LINKS = (made(""), made(None), made("https://s.shopee.vn/\ud83d"), made(ITEM.url(VN)))


@pytest.mark.parametrize(
    ("answer", "fail_code", "portal_code"),
    [
        *((answer, -1, None) for answer in (*NO_SHORT_LINKS, {"data": None}, {})),
        (errors(11001, "Params Error: originUrl invalid"), 10, 11001),
        (errors(11001, "invalid sub id"), -1, 11001),
        (errors(10000, "System error"), -1, 10000),
        (errors(10010, "cannot parse"), -1, 10010),
        (errors(None, "error [11001]: invalid link"), 10, 11001),
        (errors("odd", "?"), -1, None),
        ({"errors": ["text"]}, -1, None),
    ],
)
async def test_answer_without_short_link_fails_its_row(
    answer: object, fail_code: int, portal_code: int | None
) -> None:
    assert await Api(answer).link() == Row(None, None, FailCode(fail_code), portal_code)


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (200, errors(10020, "Invalid Signature"), OpenApiRefused),
        (200, errors("10020"), OpenApiRefused),
        (200, {"errors": [{"message": "error [10020]: Invalid Credential"}]}, OpenApiRefused),
        *((200, errors(code), OpenApiRefused) for code in (10031, 10032, 10034, 10035)),
        (200, errors(10030), OpenApiBusy),
        (200, errors(10033), AccountFrozen),
        (401, {}, OpenApiRefused),
        (403, "<html>", OpenApiRefused),
        (429, {}, OpenApiBusy),
        (500, {}, PortalDown),
        (200, "<html>", PortalDown),
        (200, [], PortalDown),
        (200, "[" * 100_000, PortalDown),
        (302, "", PortalDown),
        (403, errors(10030), OpenApiBusy),
    ],
)
async def test_refusal_or_failure_raises_its_error(
    status: int, answer: object, error: type[Exception]
) -> None:
    for ask in (Api(answer, status).link, Api(answer, status).product):
        with pytest.raises(error):
            await ask()


async def test_silent_api_raises_portal_silent(autojump_clock: trio.testing.MockClock) -> None:
    async def silent(request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    async with HttpClient(httpx.MockTransport(silent)) as client:
        with pytest.raises(PortalSilent, match="within 15 seconds"):
            await open_api(client).short_link(ITEM, [])


async def test_secret_is_in_no_error_and_no_repr() -> None:
    async with HttpClient(httpx.MockTransport(Api(errors(10020, "bad")))) as client:
        api = open_api(client)
        with pytest.raises(OpenApiRefused) as caught:
            await api.short_link(ITEM, [])
    told = f"{caught.value!r} {api!r} {vars(api)!r}"
    assert SECRET not in told
    assert not re.search(r"[0-9a-f]{64}", told)


async def test_offer_gives_the_thirteen_fields() -> None:
    api = Api(offer())
    assert (await api.product()).model_dump() == {
        **LIPSTICK,
        "image": "https://down-vn.img.susercontent.com/file/abc",
        "cap": 30_000,
    }
    assert "productOfferV2(itemId:23456789012)" in api.query


@pytest.mark.parametrize(
    ("changes", "seller", "platform", "rate"),
    [
        ({"commissionRate": "0.0123", "sellerCommissionRate": ..., "shopeeCommissionRate": ...},
         0, 1503, "1.23%"),
        ({"shopeeCommissionRate": ...}, 16_497, 5_499, "18%"),
        ({"commissionRate": ...}, 16_497, 5_499, "18%"),
        ({"sellerCommissionRate": None}, 0, 5_499, "4.5%"),
        ({"commissionRate": ..., "shopeeCommissionRate": ...}, None, None, None),
        ({"shopeeCommissionRate": "0.9"}, 16_497, 30_000, "103.5%"),
    ],
)  # fmt: skip
async def test_offer_rates_are_shares_of_the_price(
    changes: dict[str, Any], seller: int | None, platform: int | None, rate: str | None
) -> None:
    found = await Api(offer(**changes)).product()
    assert (found.seller_commission, found.platform_commission) == (seller, platform)
    assert found.commission_rate == rate


@pytest.mark.parametrize(
    ("changes", "price"),
    [
        ({"price": ...}, 122_200),
        ({"price": "0"}, 122_200),
        ({"price": ..., "priceMin": ...}, 150_000),
        ({"price": None, "priceMin": None, "priceMax": None}, None),
    ],
)
async def test_offer_price_is_the_first_that_is_known(
    changes: dict[str, Any], price: int | None
) -> None:
    assert (await Api(offer(**changes)).product()).price == price


@pytest.mark.parametrize(
    "answer",
    [
        {"data": {"productOfferV2": {"nodes": []}}},
        {"data": {"productOfferV2": {"nodes": None}}},
        {"data": {"productOfferV2": None}},
        {"data": None},
        offer(itemId=5),
        {"data": {"productOfferV2": {"nodes": [None, 5]}}},
    ],
)
async def test_item_without_offer_has_no_data(answer: object) -> None:
    assert await Api(answer).product() is None
