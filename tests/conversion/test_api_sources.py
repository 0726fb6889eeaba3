"""Links and product data by APIs, as the service asks for them."""

from __future__ import annotations

import json
from functools import partial

import httpx
import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.conversion.api_sources import ApiProducts, HttpResolver, OpenApiLinks
from smartlinkd.marketplace.answers import UNKNOWN_ROW, FailCode
from smartlinkd.marketplace.errors import HumanCheck, NotThere, OpenApiBusy
from smartlinkd.marketplace.links import Product, Short
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.open_api import OpenApi
from smartlinkd.marketplace.products import ProductData
from smartlinkd.marketplace.shortlinks import CONCURRENT_HOPS
from smartlinkd.net.client import HttpClient

VN = market("vn")
BUSY = {"errors": [{"message": "no", "extensions": {"code": 10030}}]}


async def made(*items: int, busy: tuple[int, ...]) -> list[str | None]:
    """The short links for these, by an API that has no call left for some."""

    def answer(request: httpx.Request) -> httpx.Response:
        query = json.loads(request.content)["query"]
        [item] = [item for item in items if Product(7, item).url(VN) in query]
        link = f"https://s.shopee.vn/made{item}"
        data = {"data": {"generateShortLink": {"shortLink": link}}}
        return httpx.Response(200, json=BUSY if item in busy else data)

    async with HttpClient(httpx.MockTransport(answer)) as client:
        links = OpenApiLinks(OpenApi(client, VN, "123456", SecretStr("secret")))
        rows = await links.create(None, [Product(7, item) for item in items], (), lambda: None)
    assert all(row == UNKNOWN_ROW for row in rows if row.short_link is None)
    return [row.short_link for row in rows]


async def test_a_call_that_is_refused_costs_its_own_link_only() -> None:
    assert await made(1, 2, 3, busy=(2,)) == [
        "https://s.shopee.vn/made1",
        None,
        "https://s.shopee.vn/made3",
    ]


async def test_when_all_calls_are_refused_it_says_why() -> None:
    with pytest.raises(OpenApiBusy):
        await made(1, 2, busy=(1, 2))


async def test_no_call_is_made_for_what_is_not_wanted_any_more() -> None:
    def refuse() -> None:
        raise HumanCheck

    calls: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(500)

    async with HttpClient(httpx.MockTransport(answer)) as client:
        links = OpenApiLinks(OpenApi(client, VN, "123456", SecretStr("secret")))
        with pytest.raises(HumanCheck):
            await links.create(None, [Product(7, 1)], (), refuse)
    assert calls == []


async def test_a_product_that_is_not_there_has_no_data() -> None:
    async def read(_: Product) -> ProductData:
        raise NotThere

    assert await ApiProducts(read).read(None, Product(7, 1)) is None


# Short links


async def test_all_links_of_a_silent_host_wait_for_each_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    codes: list[object] = []

    async def silent(_: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    async def one(resolver: HttpResolver, number: int) -> None:
        codes.append(await resolver.resolve(Short(f"https://s.shopee.vn/a{number}")))

    async with HttpClient(httpx.MockTransport(silent)) as client:
        resolver = HttpResolver(client, market("vn"))
        async with trio.open_nursery() as nursery:
            for number in range(CONCURRENT_HOPS + 1):
                nursery.start_soon(partial(one, resolver, number))
            await trio.sleep(10)
            assert len(codes) == CONCURRENT_HOPS
    assert codes == [FailCode.UNKNOWN] * (CONCURRENT_HOPS + 1)
