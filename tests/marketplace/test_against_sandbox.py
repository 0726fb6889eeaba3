"""Short links, the Open API and an estimate service: the sandbox's, over real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from pydantic import SecretStr

from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import OpenApiBusy, OpenApiRefused
from smartlinkd.marketplace.links import NotALink, Product, Short, parse
from smartlinkd.marketplace.markets import Market, market
from smartlinkd.marketplace.open_api import OpenApi
from smartlinkd.marketplace.shortlinks import HostLimits, Unresolved, resolve
from smartlinkd.marketplace.third_party import ThirdParty
from smartlinkd.net.client import HttpClient
from smartlinkd.sandbox.open_api import APP_ID, SECRET
from smartlinkd.sandbox.server import Sandbox, open_sandbox
from smartlinkd.sandbox.shortlinks import CODES

LIPSTICK = Product(88201679, 23456789012)
HEADPHONES = Product(55104422, 21334455667)


@dataclass
class SandboxMarket:
    sandbox: Sandbox
    market: Market
    client: HttpClient

    def open_api(self, app_id: str = APP_ID, secret: str = SECRET) -> OpenApi:
        return OpenApi(self.client, self.market, app_id, SecretStr(secret))


@asynccontextmanager
async def open_sandbox_market() -> AsyncIterator[SandboxMarket]:
    async with open_sandbox() as sandbox, HttpClient() as client:
        place = market(
            "vn",
            portal_url=sandbox.portal_url,
            shop_url=sandbox.shop_url,
            short_urls=[sandbox.short_url],
            open_api_url=sandbox.open_api_url,
        )
        yield SandboxMarket(sandbox, place, client)


async def test_each_short_link_of_the_sandbox_resolves_as_it_says() -> None:
    found: dict[str, type] = {}
    async with open_sandbox_market() as there:
        for code in CODES:
            short = parse(f"{there.sandbox.short_url}/{code.code}", there.market)
            found[code.code] = type(short)
            if isinstance(short, Short):
                deadline = 0.5 if code.code == "slow" else 5
                result = await resolve(
                    there.client,
                    short,
                    there.market,
                    HostLimits(there.market),
                    hop_deadline=deadline,
                )
                found[code.code] = type(result)
        counted = dict(there.sandbox.state.counters)
    expected = {code.code: Product if code.good else NotALink for code in CODES}
    unresolved = ("slow", "broken", "big", "unknown", "signin", "check")
    assert found == expected | dict.fromkeys(unresolved, Unresolved)
    assert not [name for name in counted if "cookie" in name or "dlink" in name], counted


async def test_open_api_makes_links() -> None:
    async with open_sandbox_market() as there:
        row = await there.open_api().short_link(LIPSTICK, ["a", "b"])
        assert row.fail_code is FailCode.SUCCESS
        assert (row.short_link or "").startswith(there.sandbox.short_url)
        assert row.long_link == row.short_link
        wrong = await there.open_api().short_link(LIPSTICK, ["not alphanumeric"])
        assert wrong == Row(None, None, FailCode.UNKNOWN, 11001)


@pytest.mark.parametrize(
    ("app_id", "secret", "error"),
    [
        (APP_ID, "wrong", OpenApiRefused),
        ("99", SECRET, OpenApiRefused),
        ("18000010030", SECRET, OpenApiBusy),
        ("18000010035", SECRET, OpenApiRefused),
    ],
)
async def test_refused_open_api_call_raises_without_the_secret(
    app_id: str, secret: str, error: type[Exception]
) -> None:
    async with open_sandbox_market() as there:
        caught: Exception | None = None
        try:
            await there.open_api(app_id, secret).short_link(LIPSTICK, [])
        except error as refusal:
            caught = refusal
    assert caught is not None
    assert SECRET not in str(caught)


EXPECTED = {
    "price": 5_290_000,
    "rating": "4.9",
    "sales": 2_481,
    "commission": 198_700,
    "commissionRate": "10%",
    "sellerCommission": 158_700,
    "platformCommission": 40_000,
    "isXtra": True,
    "cap": 40_000,
}


async def test_open_api_and_estimate_agree_on_a_product() -> None:
    async with open_sandbox_market() as there:
        estimates = ThirdParty(there.client, there.market, there.sandbox.estimate_url, {})
        by_api = await there.open_api().product(HEADPHONES, default_cap=40_000)
        by_estimate = await estimates.product(HEADPHONES)
        assert there.sandbox.state.counters["estimate with cookie"] == 0
    assert by_api == by_estimate
    dumped = by_api.model_dump()
    assert {name: dumped[name] for name in EXPECTED} == EXPECTED
