"""Links and product data by APIs, as the service asks for them."""

from __future__ import annotations

import json

import httpx
import pytest

from smartlinkd.conversion.api_sources import OpenApiLinks
from smartlinkd.marketplace.answers import UNKNOWN_ROW
from smartlinkd.marketplace.errors import HumanCheck, OpenApiBusy
from smartlinkd.marketplace.links import Product
from smartlinkd.net.client import HttpClient
from tests.marketplace.test_open_api import VN, errors, open_api
from tests.marketplace.test_open_api import made as made_link

BUSY = errors(10030)


async def made(*items: int, busy: tuple[int, ...]) -> list[str | None]:
    """The short links for these, by an API that has no call left for some."""

    def answer(request: httpx.Request) -> httpx.Response:
        query = json.loads(request.content)["query"]
        [item] = [item for item in items if Product(7, item).url(VN) in query]
        link = made_link(f"https://s.shopee.vn/made{item}")
        return httpx.Response(200, json=BUSY if item in busy else link)

    async with HttpClient(httpx.MockTransport(answer)) as client:
        links = OpenApiLinks(open_api(client))
        rows = await links.create(None, [Product(7, item) for item in items], (), lambda: None)
    assert all(row == UNKNOWN_ROW for row in rows if row.short_link is None)
    return [row.short_link for row in rows]


async def test_refused_call_costs_its_own_link_alone() -> None:
    assert await made(1, 2, 3, busy=(2,)) == [
        "https://s.shopee.vn/made1",
        None,
        "https://s.shopee.vn/made3",
    ]


async def test_refusal_of_all_calls_is_raised() -> None:
    with pytest.raises(OpenApiBusy):
        await made(1, 2, busy=(1, 2))


async def test_refused_submit_makes_no_call() -> None:
    def refuse() -> None:
        raise HumanCheck

    calls: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        return httpx.Response(500)

    async with HttpClient(httpx.MockTransport(answer)) as client:
        links = OpenApiLinks(open_api(client))
        with pytest.raises(HumanCheck):
            await links.create(None, [Product(7, 1)], (), refuse)
    assert calls == []
