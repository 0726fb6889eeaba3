"""Where the cookies of a header string are put, for every shape of shop and portal."""

from __future__ import annotations

import pytest

from smartlinkd.marketplace.cookies import CookieParam, browser_cookies
from smartlinkd.marketplace.markets import MARKET_CODES, Market, market
from smartlinkd.vault.cookie import parse_cookie

VN = market("vn")


def placed(text: str, where: Market = VN) -> list[tuple[object, object, object]]:
    """Name, URL and domain of each, in order."""
    return [
        (one["name"], one["url"], one.get("domain"))
        for one in browser_cookies(where, parse_cookie(text))
    ]


def overridden(portal: str, shop: str) -> Market:
    return market("vn", portal_url=portal, shop_url=shop)


def test_session_cookie_is_set_on_the_shops_domain() -> None:
    assert browser_cookies(VN, parse_cookie("SPC_EC=a=b==")) == [
        CookieParam(
            name="SPC_EC",
            value="a=b==",
            url="https://shopee.vn",
            domain=".shopee.vn",
            path="/",
            secure=True,
        )
    ]


def test_csrftoken_is_set_on_the_portal_too_and_the_order_is_kept() -> None:
    assert placed("b=2; csrftoken=t; a=") == [
        ("b", "https://shopee.vn", ".shopee.vn"),
        ("csrftoken", "https://shopee.vn", ".shopee.vn"),
        ("csrftoken", "https://affiliate.shopee.vn", None),
        ("a", "https://shopee.vn", ".shopee.vn"),
    ]


@pytest.mark.parametrize("code", MARKET_CODES)
def test_session_cookie_of_each_market_covers_shop_and_portal(code: str) -> None:
    where = market(code)
    domain = where.shop_url.replace("https://", ".")
    assert placed("SPC_EC=1", where) == [("SPC_EC", where.shop_url, domain)]


@pytest.mark.parametrize(
    ("portal", "shop", "domain"),
    [
        ("http://127.0.0.1:9001", "http://127.0.0.1:9002", None),
        ("http://[::1]:9001", "http://[::1]:9002", None),
        ("http://localhost:9001", "http://localhost:9002", None),
        ("http://127.0.0.1:9001", "http://127.0.0.1:9001", None),
        ("https://shop.example:8443", "https://shop.example", ".shop.example"),
    ],
)
def test_shop_and_portal_on_one_host_have_one_csrftoken(
    portal: str, shop: str, domain: str | None
) -> None:
    where = overridden(portal, shop)
    assert placed("SPC_EC=1; csrftoken=t", where) == [
        ("SPC_EC", shop, domain),
        ("csrftoken", shop, domain),
    ]


@pytest.mark.parametrize(
    ("portal", "shop"),
    [
        ("http://127.0.0.2:9001", "http://127.0.0.1:9002"),
        ("http://127.0.0.1", "http://localhost"),
        ("http://portal.localhost:9001", "http://localhost:9002"),
        ("http://portal.example", "http://shop.example"),
        ("https://evil-shopee.vn", "https://shopee.vn"),
        # An address is nobody's domain, also where the text would fit.
        ("http://9.127.0.0.1.example", "http://127.0.0.1"),
    ],
)
def test_hosts_without_common_domain_have_a_cookie_each(portal: str, shop: str) -> None:
    assert placed("SPC_EC=1; csrftoken=t", overridden(portal, shop)) == [
        ("SPC_EC", shop, None),
        ("SPC_EC", portal, None),
        ("csrftoken", shop, None),
        ("csrftoken", portal, None),
    ]


# A browser knows the prefixes in any case.
@pytest.mark.parametrize("name", ["__Host-x", "__host-x", "__HOST-x", "__Host-csrftoken"])
def test_host_prefix_cookie_is_host_only_and_secure(name: str) -> None:
    assert placed(f"{name}=1") == [
        (name, "https://shopee.vn", None),
        (name, "https://affiliate.shopee.vn", None),
    ]
    where = overridden("http://127.0.0.1:9001", "http://127.0.0.1:9002")
    [cookie] = browser_cookies(where, parse_cookie(f"{name}=1"))
    assert cookie["secure"] is True
    assert cookie["path"] == "/"
    assert "domain" not in cookie


@pytest.mark.parametrize(
    ("name", "domain", "http_only"),
    [
        *(("__Secure-x", ".shop.test", None), ("__secure-x", ".shop.test", None)),
        *(("__Http-x", ".shop.test", True), ("__http-x", ".shop.test", True)),
        ("__Host-Http-x", None, True),
    ],
)
def test_cookie_with_another_prefix_is_secure_and_http_only_as_it_says(
    name: str, domain: str | None, http_only: bool | None
) -> None:
    where = overridden("http://portal.shop.test", "http://shop.test")
    found = browser_cookies(where, parse_cookie(f"{name}=1"))
    assert len(found) == (1 if domain else 2)  # a host-only one is the portal's too
    for cookie in found:
        assert cookie["secure"] is True
        assert (cookie.get("domain"), cookie.get("httpOnly")) == (domain, http_only)


def test_plain_cookie_is_as_secure_as_its_host() -> None:
    where = overridden("http://affiliate.shop.example", "https://shop.example")
    assert [
        (one["name"], one["secure"], "httpOnly" in one)
        for one in browser_cookies(where, parse_cookie("SPC_EC=1; csrftoken=t; x__Host-y=1"))
    ] == [
        ("SPC_EC", True, False),
        ("csrftoken", True, False),
        ("csrftoken", False, False),
        ("x__Host-y", True, False),
    ]
