"""The eight markets, and addresses put in their place."""

from __future__ import annotations

import pytest

from smartlinkd.marketplace.markets import MARKET_CODES, covers, market, origin

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


def test_unknown_market_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'xx' is no market; use one of vn, th, id"):
        market("xx")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("shop.example", "needs http:// or https://"),
        ("ftp://shop.example", "needs http:// or https://"),
        ("https://shop.example/path", "something behind the host"),
        ("https://shop.example?a=1", "something behind the host"),
        ("https://", "no usable host name"),
        ("https://shop_.example", "no usable host name"),
        ("https://shop.example.", "no usable host name"),
        ("https://xn--shope-9ya.vn", "no usable host name"),
        ("https://shop.example:port", "is not an address"),
        ("https://shop.example:99999", "is not an address"),
        ("https://[::1", "is not an address"),
    ],
)
def test_text_that_is_no_origin_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        origin(text)


def test_origin_with_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="a user name") as refused:
        origin("https://owner:hunter2@shop.example")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "host", "port", "expected"),
    [
        ("https://shopee.vn", "shopee.vn", None, True),
        ("https://shopee.vn", "www.shopee.vn", None, True),
        ("https://shopee.vn", "a.b.shopee.vn", None, True),
        ("https://shopee.vn", "evil-shopee.vn", None, False),
        ("https://shopee.vn", "shopee.vn.evil.com", None, False),
        ("https://shopee.vn", "shopee.vn", 443, False),
        ("http://127.0.0.1:9001", "127.0.0.1", 9001, True),
        ("http://127.0.0.1:9001", "127.0.0.1", None, False),
        ("http://127.0.0.1:9001", "127.0.0.1", 9002, False),
        ("http://127.0.0.1:9001", "x.127.0.0.1", 9001, False),
        ("http://localhost:9001", "www.localhost", 9001, True),
    ],
)
def test_covers_the_host_and_its_sub_domains(
    url: str, host: str, port: int | None, expected: bool
) -> None:
    assert covers(url, host, port) is expected
