"""Signs of a lost session and of a human check, and that the two are never mixed up."""

from __future__ import annotations

import json

import pytest

from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.marketplace.markets import market
from smartlinkd.marketplace.portal_page import PageAnswer
from smartlinkd.marketplace.signs import (
    Sign,
    is_check_in_frame,
    raise_gravest,
    read_json,
    sign_of_url,
)

CALL = "https://affiliate.shopee.vn/api/v3/gql?q=batchCustomLink"
JSON = "application/json"
LOGIN_PAGE = "<!doctype html><form><input type=password></form>"


@pytest.mark.parametrize(
    ("url", "sign"),
    [
        ("https://shopee.vn/buyer/login?next=https%3A%2F%2Faffiliate.shopee.vn", Sign.LOST),
        ("https://shopee.vn/buyer/login", Sign.LOST),
        ("https://shopee.vn/buyer/login/otp", Sign.LOST),
        ("https://affiliate.shopee.vn/login", Sign.LOST),
        ("https://accounts.shopee.vn/anything", Sign.LOST),
        ("http://127.0.0.1:9002/buyer/login", Sign.LOST),
        ("https://shopee.vn/verify/captcha?anti_bot_tracking_id=1", Sign.HUMAN_CHECK),
        ("https://shopee.vn/verify/traffic", Sign.HUMAN_CHECK),
        ("https://shopee.vn/verify/traffic/error?type=2", Sign.HUMAN_CHECK),
        ("https://accounts.shopee.vn/verify/captcha", Sign.HUMAN_CHECK),
        ("https://affiliate.shopee.vn/offer/custom_link", None),
        ("https://affiliate.shopee.vn/offer/custom_link?next=/buyer/login", None),
        ("https://affiliate.shopee.vn/#/verify/captcha", None),
        ("https://shopee.vn/loginx", None),
        ("https://shopee.vn/verify/email", None),
        ("https://myaccounts.shopee.vn/", None),
        ("http://[/verify/captcha", None),
    ],
)
def test_an_address_is_a_sign(url: str, sign: Sign | None) -> None:
    assert sign_of_url(url) is sign


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {}),
        (403, {"code": 403, "msg": "forbidden"}),
        (401, {"is_login": False, "error": 401}),
        (200, {"is_login": False, "error": 90309999}),
        (200, {"is_login": False, "action_type": 2, "error": 90309999, "tracking_id": "x"}),
        (403, {"is_login": False, "error": 90309999}),
        (200, {"is_login": False, "error": "90309999"}),
        (200, {"is_login": False}),
        (200, {"1": False, "2": False, "3": 0, "4": 2, "5": 90309999, "6": "x"}),
    ],
)
def test_a_lost_session_in_json(status: int, body: object) -> None:
    with pytest.raises(SessionLost):
        read_json(PageAnswer(status, CALL, JSON, json.dumps(body)))


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"error": 90309999}),
        (200, {"is_login": True, "error": 90309999}),
        (403, {"error": 90309999, "is_login": True}),
        (401, {"error": 90309999}),
        (200, {"code": 90309999, "msg": "anti-bot"}),
        (200, {"error": "90309999"}),
        (200, {"1": False, "2": True, "5": 90309999}),
        (429, {"error": 90309999}),
        (403, {"errors": [{"extensions": {"code": 90309999}}], "data": None}),
        (403, {"errors": [{"message": "x"}, {"extensions": {"code": 90309999}}]}),
    ],
)
def test_a_human_check_in_json(status: int, body: object) -> None:
    with pytest.raises(HumanCheck):
        read_json(PageAnswer(status, CALL, JSON, json.dumps(body)))


def test_where_it_ended_counts_before_what_came() -> None:
    with pytest.raises(HumanCheck):
        read_json(PageAnswer(200, "https://shopee.vn/verify/captcha", "text/html", LOGIN_PAGE))
    with pytest.raises(SessionLost):
        read_json(PageAnswer(200, "https://shopee.vn/buyer/login", "text/html", LOGIN_PAGE))


@pytest.mark.parametrize("mime_type", ["text/html", "text/html; charset=utf-8", "", JSON])
def test_a_page_in_the_answers_place_is_a_lost_session(mime_type: str) -> None:
    with pytest.raises(SessionLost):
        read_json(PageAnswer(200, CALL, mime_type, "\n " + LOGIN_PAGE))


@pytest.mark.parametrize(
    ("status", "mime_type", "body"),
    [
        (500, JSON, "{}"),
        (502, "text/html", "<h1>Bad Gateway</h1>"),
        (429, JSON, '{"code": 429}'),
        (404, JSON, "{}"),
        (302, "", ""),
        (0, "", ""),
        (200, JSON, ""),
        (200, JSON, "null"),
        (200, JSON, "[]"),
        (200, JSON, '"ok"'),
        (200, JSON, '{"data": {"batchCust'),
        (200, JSON, "[" * 100_000),
        (200, JSON, '{"a":' * 100_000),
        (200, "text/plain", "ok"),
    ],
)
def test_a_fault_of_the_portal_is_neither(status: int, mime_type: str, body: str) -> None:
    with pytest.raises(PortalDown):
        read_json(PageAnswer(status, CALL, mime_type, body))


def test_an_answer_is_what_it_says() -> None:
    response = PageAnswer(200, CALL, JSON, '{"data": null, "error": 0}')
    assert read_json(response) == {"data": None, "error": 0}


@pytest.mark.parametrize("number", [90309999, "90309999"])
def test_what_an_answer_is_about_is_no_sign(number: object) -> None:
    """There is an item of that number, too."""
    body = {"code": 0, "data": {"item_id": number, "shop_id": number, "rows": [number]}}
    assert read_json(PageAnswer(200, CALL, JSON, json.dumps(body))) == body


@pytest.mark.parametrize("error", [SessionLost(), HumanCheck()])
def test_errors_name_the_remedy(error: Exception) -> None:
    assert "in an ordinary browser" in str(error)
    assert "sync the new cookie" in str(error)  # the same one ends no pause


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
def test_only_the_portals_own_check_counts_in_a_frame(url: str, is_one: bool) -> None:
    assert is_check_in_frame(url, market("vn")) is is_one


def test_of_several_signs_a_human_check_is_raised() -> None:
    raise_gravest(None)
    with pytest.raises(SessionLost):
        raise_gravest(None, Sign.LOST)
    with pytest.raises(HumanCheck):
        raise_gravest(Sign.LOST, Sign.HUMAN_CHECK)


def test_a_human_check_can_be_cleared() -> None:
    assert "smartlinkd account clear" in str(HumanCheck())
