"""The eight markets, and addresses put in their place."""

from __future__ import annotations

import pytest

from smartlinkd.marketplace.markets import MARKET_CODES, market

SHOPS = {
    "vn": ("shopee.vn", "VND"),
    "th": ("shopee.co.th", "THB"),
    "id": ("shopee.co.id", "IDR"),
    "my": ("shopee.com.my", "MYR"),
    "sg": ("shopee.sg", "SGD"),
    "ph": ("shopee.ph", "PHP"),
    "tw": ("shopee.tw", "TWD"),
    "br": ("shopee.com.br", "BRL"),
}


@pytest.mark.parametrize("code", sorted({*SHOPS, *MARKET_CODES}))
def test_market_has_its_own_addresses(code: str) -> None:
    host, currency = SHOPS[code]
    found = market(code)
    assert found.shop_url == f"https://{host}"
    assert found.portal_url == f"https://affiliate.{host}"
    assert found.short_urls == (
        f"https://s.{host}",
        f"https://{code}.shp.ee",
        "https://shope.ee",
        "https://shp.ee",
    )
    assert found.currency == currency
    assert found.open_api_url == f"https://open-api.affiliate.{host}/graphql"


def test_configured_addresses_replace_the_markets_own() -> None:
    found = market(
        "vn",
        portal_url="http://127.0.0.1:9001/",
        shop_url="HTTP://LOCALHOST:9002",
        short_urls=["http://[::1]:9003", "https://short.example:443"],
    )
    assert found.portal_url == "http://127.0.0.1:9001"
    assert found.shop_url == "http://localhost:9002"
    assert found.short_urls == ("http://[::1]:9003", "https://short.example")
