"""The grammar of links: every form, every market, and everything that only looks like one."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from smartlinkd.marketplace.links import (
    MAX_ID,
    MarketPage,
    NotALink,
    Product,
    Short,
    affiliate_id_in,
    follow,
    parse,
)
from smartlinkd.marketplace.markets import MARKET_CODES, market
from smartlinkd.marketplace.urls import MAX_LINK

VN = market("vn")
LOCAL = market(
    "vn",
    portal_url="http://127.0.0.1:9001",
    shop_url="http://127.0.0.1:9002",
    short_urls=["http://127.0.0.1:9003"],
)
ITEM = Product(88201679, 23456789012)

PRODUCT_PATHS = [
    "/product/88201679/23456789012",
    "/product/88201679/23456789012/",
    "/opaanlp/88201679/23456789012",
    "/universal-link/product/88201679/23456789012",
    "/universal-link/opaanlp/88201679/23456789012",
    "/canh.hong_official-1/88201679/23456789012",
    "/Son-Kem-Li-i.88201679.23456789012",
    "/universal-link/Son-Kem-Li-i.88201679.23456789012",
    "/i.88201679.23456789012",
    "/-i.88201679.23456789012",
    "/S%C6%A1n-kem-i.88201679.23456789012",
    "/Sơn-Kem-Lì-i.88201679.23456789012",
    "/a-i.1.2-i.88201679.23456789012",
]
TAILS = [
    "",
    "?sp_atk=1&xptdk=2",
    "?utm_source=an_17000000001&utm_medium=affiliates&utm_content=a-b---",
    "#reviews",
    "?next=https://evil.com/product/1/2#/product/3/4",
]


@pytest.mark.parametrize("code", MARKET_CODES)
def test_product_link_of_each_form_and_market_is_read(code: str) -> None:
    place = market(code)
    host = place.shop_url.removeprefix("https://")
    assert ITEM.url(place) == f"{place.shop_url}/product/88201679/23456789012"
    for start in ("https://", "http://", "", "HTTPS://", "https://www.", "m.", "https://WwW."):
        for path in PRODUCT_PATHS:
            for tail in TAILS:
                for name in (host, host.upper()):
                    link = f"{start}{name}{path}{tail}"
                    assert parse(link, place) == ITEM, link


@pytest.mark.parametrize("code", MARKET_CODES)
def test_short_link_of_each_host_and_market_is_read(code: str) -> None:
    place = market(code)
    host = place.shop_url.removeprefix("https://")
    for short in (f"s.{host}", f"{code}.shp.ee", "shope.ee", "shp.ee"):
        for start in ("https://", "http://", "", "HtTp://"):
            for tail in ("", "/", "?lp=aff", "?share_channel_code=1#x"):
                link = f"{start}{short}/4Ayk_Y-xu{tail}"
                assert parse(link, place) == Short(f"https://{short}/4Ayk_Y-xu"), link


@pytest.mark.parametrize("code", MARKET_CODES)
def test_link_of_another_market_is_none(code: str) -> None:
    here = market(code)
    for other in MARKET_CODES:
        if other != code:
            there = market(other)
            assert isinstance(parse(ITEM.url(there), here), NotALink)
            for own_short in there.short_urls[:2]:
                assert isinstance(parse(f"{own_short}/abc", here), NotALink)


@pytest.mark.parametrize(
    "authority",
    [
        *("evil-shopee.vn", "evilshopee.vn", "shopee.vn.evil.com", "shopee.vn-evil.com"),
        *("shopee.v", "hopee.vn", "shopee.com", "shopee.vnn", ""),
        # user names
        *("user@shopee.vn", "evil.com@shopee.vn", "@shopee.vn"),
        *("shopee.vn@evil.com", "shopee.vn:pass@evil.com"),
        # ports
        *("shopee.vn:80", "shopee.vn:8080", "shopee.vn:", "shopee.vn:abc", "shopee.vn:99999999"),
        # dots
        *("shopee.vn.", ".shopee.vn", "www..shopee.vn", "shopee..vn"),
        # other alphabets, and what stands for them: a Cyrillic o, a full-width s
        *("sh\u043epee.vn", "\uff53hopee.vn", "shopee\u3002vn", "shopee\u200b.vn"),
        *("xn--shpee-jsd.vn", "xn--abc.shopee.vn"),
        *("shopee%2evn", "shopee.vn%00.evil.com", "shopee.vn%2f.evil.com"),
        # other notations of a host
        *("[shopee.vn]", "[::1]", "127.0.0.1", "-shopee.vn", "_x.shopee.vn"),
        *("shopee,vn", "shopee.vn;evil.com", "shopee.vn&evil.com"),
    ],
)
def test_look_alike_host_is_no_link(authority: str) -> None:
    for scheme in ("https://", ""):
        assert isinstance(parse(f"{scheme}{authority}/product/1/2", VN), NotALink)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "//",
        "https://",
        "hello",
        "https://shopee.vn",
        "https://shopee.vn/",
        "https://shopee.vn/search?keyword=a-i.1.2",
        "https://shopee.vn?x=/product/1/2",
        "https://shopee.vn#/product/1/2",
        "https://evil.com/shopee.vn/product/1/2",
        "https://evil.com?shopee.vn/product/1/2",
        "https://evil.com#shopee.vn/product/1/2",
        "//shopee.vn/product/1/2",
        "ftp://shopee.vn/product/1/2",
        "javascript://shopee.vn/product/1/2",
        "javascript:alert(1)//shopee.vn/product/1/2",
        "file:///product/1/2",
        "data:text/html,shopee.vn/product/1/2",
        "shopeevn://shopee.vn/product/1/2",
        "http\u017f://shopee.vn/product/1/2",
        # control characters, spaces
        "https://shop\tee.vn/product/1/2",
        "https://shopee.vn/a\u2028b-i.1.2",
        # almost a product
        "https://shopee.vn/product/1",
        "https://shopee.vn/product/1/2/3",
        "https://shopee.vn/product//2",
        "https://shopee.vn/x/product/1/2",
        "https://shopee.vn/product/1a/2",
        "https://shopee.vn/product/-1/2",
        "https://shopee.vn/product/0/2",
        "https://shopee.vn/product/1/0",
        "https://shopee.vn/product/\u0661/\u0662",
        "https://shopee.vn/product/%31/2",
        f"https://shopee.vn/product/1/{'9' * 400}",
        "https://shopee.vn/a-i.1",
        "https://shopee.vn/a-i.1.2.3",
        "https://shopee.vn/ai.1.2",
        "https://shopee.vn/a-i.1.2x",
        "https://shopee.vn/a-I.1.2",
        "https://shopee.vn/x/a-i.1.2",
        # almost a short link
        "https://s.shopee.vn/",
        "https://s.shopee.vn",
        "https://s.shopee.vn/a/b",
        "https://s.shopee.vn/a%2fb",
        "https://s.shopee.vn/" + "a" * 65,
        "https://x.shp.ee/abc",
        "https://evil-shp.ee/abc",
        "https://www.vn.shp.ee/abc",
        "https://vn.shp.ee/product/1/2",
        # login links
        "https://shp.ee/dlink",
        "https://shp.ee/dlinkabc",
        "https://shp.ee/dlink/abc",
        "https://shp.ee/DLink7Qx?x=1",
        "https://shp.ee/%64link",
        "https://shp.ee//dlink",
        "https://vn.shp.ee/dlink7Qx",
        "shope.ee/dlink7Qx",
    ],
)
def test_text_that_is_no_link_is_none(text: str) -> None:
    assert isinstance(parse(text, VN), NotALink)


def test_link_over_its_bound_is_none() -> None:
    assert parse(f"https://shopee.vn/product/1/{MAX_ID}", VN) == Product(1, MAX_ID)
    assert isinstance(parse(f"https://shopee.vn/product/1/{MAX_ID + 1}", VN), NotALink)
    link = "https://shopee.vn/product/1/2?" + "a" * MAX_LINK
    assert isinstance(parse(link, VN), NotALink)


@pytest.mark.parametrize(
    "wrapper",
    ["https://shopee.vn/universal-link?deep_and_web=1&redir=", "s.shopee.vn/an_redir?origin_link="],
)
def test_wrapped_link_is_what_is_in_it(wrapper: str) -> None:
    def wrapped(link: str) -> object:
        return parse(wrapper + quote(link, safe=""), VN)

    assert wrapped("https://shopee.vn/a-i.88201679.23456789012?x=1&y=2") == ITEM
    assert wrapped("https://s.shopee.vn/abc") == Short("https://s.shopee.vn/abc")
    assert isinstance(wrapped("https://evil.com/product/1/2"), NotALink)
    assert isinstance(wrapped("javascript:alert(1)"), NotALink)
    assert isinstance(wrapped(""), NotALink)


def test_link_wrapped_three_times_is_none() -> None:
    link = ITEM.url(VN)
    for _ in range(2):
        link = "https://shopee.vn/universal-link?redir=" + quote(link, safe="")
    assert parse(link, VN) == ITEM
    link = "https://shopee.vn/universal-link?redir=" + quote(link, safe="")
    assert isinstance(parse(link, VN), NotALink)


def test_configured_addresses_are_the_only_ones_read() -> None:
    assert parse("http://127.0.0.1:9002/a-i.88201679.23456789012", LOCAL) == ITEM
    assert parse("127.0.0.1:9002/product/88201679/23456789012", LOCAL) == ITEM
    assert ITEM.url(LOCAL) == "http://127.0.0.1:9002/product/88201679/23456789012"
    assert parse("127.0.0.1:9003/abc?x=1", LOCAL) == Short("http://127.0.0.1:9003/abc")
    for foreign in (
        ITEM.url(VN),
        "https://s.shopee.vn/abc",
        "http://127.0.0.1/product/1/2",
        "http://127.0.0.1:9001/product/1/2",
        "http://127.0.0.1:9003/product/1/2",
        "http://127.0.0.1:9002/abc",
        "http://u@127.0.0.1:9002/product/1/2",
    ):
        assert isinstance(parse(foreign, LOCAL), NotALink), foreign


def test_configured_ipv6_address_is_read() -> None:
    place = market("vn", shop_url="http://[::1]:9002", short_urls=["http://[::1]:9003"])
    assert parse("http://[::1]:9002/product/88201679/23456789012", place) == ITEM
    assert parse("[::1]:9003/abc", place) == Short("http://[::1]:9003/abc")
    assert follow("http://[::1]:9002/x?y=1", place) == MarketPage("http://[::1]:9002/x?y=1")


def test_one_address_for_shop_and_short_links_is_read() -> None:
    place = market("vn", shop_url="http://localhost:9", short_urls=["http://localhost:9"])
    assert parse("localhost:9/product/88201679/23456789012", place) == ITEM
    assert parse("localhost:9/abc", place) == Short("http://localhost:9/abc")
    assert follow("http://localhost:9/a/b", place) == MarketPage("http://localhost:9/a/b")


@pytest.mark.parametrize(
    ("url", "fetched"),
    [
        ("https://shopee.vn/m/sale?x=1#y", "https://shopee.vn/m/sale?x=1"),
        ("http://shopee.vn", "https://shopee.vn/"),
        ("https://www.shopee.vn/a", "https://www.shopee.vn/a"),
        ("http://s.shopee.vn/abc?x=1", "https://s.shopee.vn/abc?x=1"),
        ("https://shope.ee/abc", "https://shope.ee/abc"),
        ("https://shopee.vn/a b?c=d e", "https://shopee.vn/a%20b?c=d%20e"),
    ],
)
def test_redirect_within_the_market_is_fetched(url: str, fetched: str) -> None:
    assert follow(url, VN) == MarketPage(fetched)


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.com/",
        "https://evil-shopee.vn/",
        "http://169.254.169.254/latest",
        "http://shopee.vn:22/",
        "https://user@shopee.vn/",
        "https://shp.ee/dlink7Qx",
        "https://shp.ee/%64link7Qx",
        "https://s.shopee.vn/x/y",
        "file:///etc/passwd",
    ],
)
def test_redirect_out_of_the_market_is_no_link(url: str) -> None:
    assert isinstance(follow(url, VN), NotALink)


@pytest.mark.parametrize(
    "url",
    [
        "https://shopee.vn:443/product/88201679/23456789012",
        "https://shopee.vn/opaanlp/88201679/23456789012?utm_source=x",
        "https://shopee.vn/Son Kem|Li-i.88201679.23456789012",
        "https://shopee.vn\\product\\88201679\\23456789012?a=b c",
        "https://shopee.vn//product/88201679/23456789012",
        "https://shopee.vn/universal-link?a=b c&redir=shopee.vn%2Fx-i.88201679.23456789012",
    ],
)
def test_redirect_to_a_product_is_the_product(url: str) -> None:
    assert follow(url, VN) == ITEM


def test_reason_of_no_link_repeats_nothing_of_the_text() -> None:
    found = parse("https://shopee.vn.secret-host.example/secret-path", VN)
    assert isinstance(found, NotALink)
    assert "secret" not in found.why


@pytest.mark.parametrize(
    ("long_link", "name"),
    [
        ("https://shopee.vn/universal-link/product/7/1?utm_medium=x&utm_source=an_17&a=b", "an_17"),
        ("https://shopee.vn/universal-link/product/7/1?utm_source=an_17#x", "an_17"),
        ("https://shopee.vn/universal-link/product/7/1?utm_content=an_17", None),
        ("https://shopee.vn/universal-link/product/7/1?utm_source=an_", None),
        ("https://shopee.vn/universal-link/product/7/1?utm_source=an_1%0Ax", None),
        ("https://shopee.vn/product/7/1", None),
        ("https://shopee.vn/product/7/1?not_utm_source=an_17", None),
        ("https://shopee.vn/product/7/1?utm_source=x&utm_source=an_17", "an_17"),
    ],
)
def test_affiliate_id_in_a_long_link_is_read(long_link: str, name: str | None) -> None:
    assert affiliate_id_in(long_link) == name
