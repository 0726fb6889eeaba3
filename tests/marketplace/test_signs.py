"""Signs of a lost session and of a human check, and that the two are never mixed up."""

from __future__ import annotations

import json

import pytest

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.signs import (
    Sign,
    is_check_in_frame,
    read_json,
    sign_of_url,
)

CALL = "https://affiliate.shopee.vn/api/v3/gql?q=batchCustomLink"
JSON = "application/json"
LOGIN_PAGE = "<!doctype html><form><input type=password></form>"


@pytest.mark.parametrize(
    ("url", "sign"),
    [
        ("https://shopee.vn/buyer/login?next=https%3A%2F%2Faffiliate.shopee.vn", SessionLost),
        ("https://shopee.vn/buyer/login", SessionLost),
        ("https://shopee.vn/buyer/login/otp", SessionLost),
        ("https://affiliate.shopee.vn/login", SessionLost),
        ("https://accounts.shopee.vn/anything", SessionLost),
        ("http://127.0.0.1:9002/buyer/login", SessionLost),
        ("https://shopee.vn/verify/captcha?anti_bot_tracking_id=1", HumanCheck),
        ("https://shopee.vn/verify/traffic", HumanCheck),
        ("https://shopee.vn/verify/traffic/error?type=2", HumanCheck),
        ("https://accounts.shopee.vn/verify/captcha", HumanCheck),
        ("https://affiliate.shopee.vn/offer/custom_link", None),
        ("https://affiliate.shopee.vn/offer/custom_link?next=/buyer/login", None),
        ("https://affiliate.shopee.vn/#/verify/captcha", None),
        ("https://shopee.vn/loginx", None),
        ("https://shopee.vn/verify/email", None),
        ("https://myaccounts.shopee.vn/", None),
        ("http://[/verify/captcha", None),
    ],
)
def test_url_of_login_or_check_is_a_sign(url: str, sign: Sign | None) -> None:
    assert sign_of_url(url) is sign


@pytest.mark.parametrize(
    ("error", "status", "mime_type", "body"),
    [
        (SessionLost, 401, JSON, {}),
        (SessionLost, 403, JSON, {"code": 403, "msg": "forbidden"}),
        (SessionLost, 401, JSON, {"is_login": False, "error": 401}),
        (SessionLost, 200, JSON, {"is_login": False, "error": 90309999}),
        (
            SessionLost,
            200,
            JSON,
            {"is_login": False, "action_type": 2, "error": 90309999},
        ),
        (SessionLost, 403, JSON, {"is_login": False, "error": 90309999}),
        (SessionLost, 200, JSON, {"is_login": False, "error": "90309999"}),
        (SessionLost, 200, JSON, {"is_login": False}),
        (SessionLost, 200, JSON, {"1": False, "2": False, "3": 0, "4": 2, "5": 90309999, "6": "x"}),
        *(
            (SessionLost, 200, mime_type, "\n " + LOGIN_PAGE)
            for mime_type in ("text/html", "text/html; charset=utf-8", "", JSON)
        ),
        (HumanCheck, 200, JSON, {"error": 90309999}),
        (HumanCheck, 200, JSON, {"is_login": True, "error": 90309999}),
        (HumanCheck, 403, JSON, {"error": 90309999, "is_login": True}),
        (HumanCheck, 401, JSON, {"error": 90309999}),
        (HumanCheck, 200, JSON, {"code": 90309999, "msg": "anti-bot"}),
        (HumanCheck, 200, JSON, {"error": "90309999"}),
        (HumanCheck, 200, JSON, {"1": False, "2": True, "5": 90309999}),
        (HumanCheck, 429, JSON, {"error": 90309999}),
        (HumanCheck, 403, JSON, {"errors": [{"extensions": {"code": 90309999}}], "data": None}),
        (HumanCheck, 403, JSON, {"errors": [{"message": "x"}, {"extensions": {"code": 90309999}}]}),
        (PortalDown, 500, JSON, "{}"),
        (PortalDown, 502, "text/html", "<h1>Bad Gateway</h1>"),
        (PortalDown, 429, JSON, '{"code": 429}'),
        (PortalDown, 404, JSON, "{}"),
        (PortalDown, 302, "", ""),
        (PortalDown, 0, "", ""),
        (PortalDown, 200, JSON, ""),
        (PortalDown, 200, JSON, "null"),
        (PortalDown, 200, JSON, "[]"),
        (PortalDown, 200, JSON, '"ok"'),
        (PortalDown, 200, JSON, '{"data": {"batchCust'),
        (PortalDown, 200, JSON, "[" * 100_000),
        (PortalDown, 200, JSON, '{"a":' * 100_000),
        (PortalDown, 200, "text/plain", "ok"),
    ],
)
def test_answer_with_sign_or_fault_raises_its_error(
    error: type[Exception], status: int, mime_type: str, body: object
) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    with pytest.raises(error):
        read_json(CapturedResponse(status, CALL, mime_type, text))


@pytest.mark.parametrize(
    ("path", "error"), [("/verify/captcha", HumanCheck), ("/buyer/login", SessionLost)]
)
def test_address_of_an_answer_counts_before_its_body(path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_json(CapturedResponse(200, f"https://shopee.vn{path}", "text/html", LOGIN_PAGE))


def test_answer_without_sign_is_returned() -> None:
    response = CapturedResponse(200, CALL, JSON, '{"data": null, "error": 0}')
    assert read_json(response) == {"data": None, "error": 0}


@pytest.mark.parametrize("number", [90309999, "90309999"])
def test_check_code_as_an_id_is_no_sign(number: object) -> None:
    """There is an item of that number, too."""
    body = {"code": 0, "data": {"item_id": number, "shop_id": number, "rows": [number]}}
    assert read_json(CapturedResponse(200, CALL, JSON, json.dumps(body))) == body


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("https://affiliate.shopee.vn/verify/captcha", True),
        ("https://shopee.vn/verify/traffic/error?type=2", True),
        ("https://accounts.shopee.vn/verify/captcha", True),
        ("https://shopee.vn/product/1/2", False),
        ("https://shopee.vn/buyer/login", False),
        ("https://ads.example/verify/captcha", False),
        ("https://evil-shopee.vn/verify/captcha", False),
        ("https://shopee.vn:8443/verify/captcha", False),
        ("https://shopee.vn:x/verify/captcha", False),
        ("https://[/verify/captcha", False),
        ("about:blank", False),
    ],
)
def test_check_in_frame_is_one_of_the_market_only(url: str, is_one: bool) -> None:
    assert is_check_in_frame(url, market("vn")) is is_one
