"""The answer to a submit, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.marketplace.answers import (
    FailCode,
    Row,
    clean_short_link,
    parse_links_answer,
)
from smartlinkd.marketplace.errors import (
    HumanCheck,
    PortalChanged,
    PortalDown,
    PortalError,
    SessionLost,
)
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import market

VN = market("vn")
CALL = "https://affiliate.shopee.vn/api/v3/gql?q=batchCustomLink"
ASKED = [Product(11, item_id) for item_id in (101, 102, 103)]
SHORT = "https://s.shopee.vn/4AykYR6yxu"


def long_link(item_id: int) -> str:
    return (
        f"https://shopee.vn/universal-link/product/11/{item_id}?utm_medium=affiliates"
        "&utm_source=an_17000000001&utm_content=a-b---"
    )


def good(item_id: int, **changes: Any) -> dict[str, Any]:
    return {"shortLink": SHORT, "longLink": long_link(item_id), "failCode": 0} | changes


def read(rows: Any, *, asked: list[Product] = ASKED) -> list[Row]:
    return read_answer({"data": {"batchCustomLink": rows}}, asked=asked)


def read_answer(answer: Any, *, asked: list[Product] = ASKED) -> list[Row]:
    response = CapturedResponse(200, CALL, "application/json", json.dumps(answer))
    return parse_links_answer(response, asked=asked, sub_ids=("a", "b"), market=VN)


def only(row: Any) -> Row:
    return read([row], asked=[Product(11, 101)])[0]


def test_rows_are_in_the_order_of_the_request() -> None:
    rows = read([good(101, shortLink=f"{SHORT}1"), good(102), good(103, shortLink=f"{SHORT}3")])
    assert rows == [
        Row(f"{SHORT}1", long_link(101), FailCode.SUCCESS, 0),
        Row(SHORT, long_link(102), FailCode.SUCCESS, 0),
        Row(f"{SHORT}3", long_link(103), FailCode.SUCCESS, 0),
    ]


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (None, [-1, -1, -1]),
        ({}, [-1, -1, -1]),
        ({"other": []}, [-1, -1, -1]),
        ({"batchCustomLink": None}, [-1, -1, -1]),
        ({"batchCustomLink": []}, [-1, -1, -1]),
        ({"batchCustomLink": [good(101)]}, [0, -1, -1]),
        ({"batchCustomLink": [good(101), good(102)]}, [0, 0, -1]),
    ],
)
def test_missing_row_is_an_unknown_error(data: Any, codes: list[int]) -> None:
    found = read_answer({"code": 0, "data": data})
    assert [row.fail_code for row in found] == codes


def test_more_rows_than_links_raise_portal_changed() -> None:
    with pytest.raises(PortalChanged, match="4 links, and was asked for 3"):
        read([good(101), good(102), good(103), good(103)])


@pytest.mark.parametrize(
    ("said", "ours", "kept"),
    [
        (0, 0, 0),
        (None, 0, None),
        ("0", 0, 0),
        (1, -1, 1),
        (2, 10, 2),
        ("2", 10, 2),
        (3, -1, 3),
        (7, -1, 7),
        (99, -1, 99),
        (True, -1, None),
        (-1, -1, -1),
        (40300, -1, 40300),
        ("odd", -1, None),
        ([], -1, None),
    ],
)
def test_portal_code_is_mapped_and_kept(said: Any, ours: int, kept: int | None) -> None:
    row = only(good(101, failCode=said))
    assert (row.fail_code, row.portal_code) == (ours, kept)
    assert (row.short_link is None) == (ours != 0)


@pytest.mark.parametrize("row", [None, 5, "x", [], {"failCode": 1}])
def test_unreadable_row_is_an_unknown_error(row: Any) -> None:
    assert only(row).fail_code is FailCode.UNKNOWN


ELSEWHERE = "https://other.example/x"
NO_SHORT_LINKS: list[object] = [
    *("", None, 5, "s.shopee.vn/abc", "javascript:alert(1)", "https://", "https://["),
    *(SHORT + "\ud83d", long_link(101), "https://shopee.vn/product/11/101"),
    "https://shopee.vn/universal-link?redir=https%3A%2F%2Fshopee.vn%2Fproduct%2F11%2F101",
]
OTHER_SUB_IDS = ("a", "a-b-c--", "b-a---", "----", "")


@pytest.mark.parametrize(
    "changes",
    [
        *({"shortLink": short} for short in NO_SHORT_LINKS),
        {"shortLink": ELSEWHERE, "longLink": ELSEWHERE},
        *({"longLink": long_link(101).replace("=a-b---", f"={it}")} for it in OTHER_SUB_IDS),
    ],
)
def test_success_without_short_link_or_for_other_sub_ids_is_an_unknown_error(
    changes: dict[str, object],
) -> None:
    assert only(good(101, **changes)) == Row(None, None, FailCode.UNKNOWN, 0)


@pytest.mark.parametrize("long", ["", None, 5, "not a link", "javascript:x", f"{SHORT}/\ud83d"])
def test_success_without_long_link_is_kept(long: Any) -> None:
    assert only(good(101, longLink=long)) == Row(SHORT, None, FailCode.SUCCESS, 0)


def test_long_link_to_another_item_is_no_success() -> None:
    rows = read([good(101), good(999), good(103)])
    assert [row.fail_code for row in rows] == [0, -1, 0]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("=a-b---", "=a-b"),
        ("=a-b---", "=A-b---"),
        ("=a-b---", "s=none"),
        ("=a-b---", "=a_b"),
        ("/product/11/", "/product/12/"),  # it has moved to another shop
    ],
)
def test_long_link_of_the_same_item_and_sub_ids_is_kept(text: str, sent: str) -> None:
    same = long_link(101).replace(text, sent)
    assert only(good(101, longLink=same)) == Row(SHORT, same, FailCode.SUCCESS, 0)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (SHORT, SHORT),
        (f"{SHORT}?lp=aff", SHORT),
        (f"{SHORT}?lp=aff&x=1", f"{SHORT}?x=1"),
        (f"{SHORT}?x=1&lp=aff", f"{SHORT}?x=1"),
        (f"{SHORT}?x=1&lp=aff&y=%2F", f"{SHORT}?x=1&y=%2F"),
        (f"{SHORT}?lp=affx", f"{SHORT}?lp=affx"),
        (f"{SHORT}?xlp=aff", f"{SHORT}?xlp=aff"),
        (f"{SHORT}?lp=aff#a", f"{SHORT}#a"),
        (f"{SHORT}#lp=aff", f"{SHORT}#lp=aff"),
        (f"{SHORT}?", SHORT),
    ],
)
def test_clean_short_link_loses_landing_parameter_only(given: str, kept: str) -> None:
    assert clean_short_link(given, VN) == kept


@pytest.mark.parametrize("data", [None, {"batchCustomLink": None}, {"batchCustomLink": []}])
def test_graphql_error_without_rows_raises_with_its_code(data: Any) -> None:
    errors = [{"message": "sandbox:\nrefused", "extensions": {"code": 90000}}]
    with pytest.raises(PortalError, match="sandbox: refused") as caught:
        read_answer({"errors": errors, "data": data})
    assert caught.value.code == 90000


def test_graphql_error_message_is_bounded_text() -> None:
    with pytest.raises(PortalError) as caught:
        read_answer({"errors": [{"message": "refused \ud83d" + "x" * 100_000}]})
    assert len(caught.value.detail) <= 300
    assert caught.value.detail.startswith("refused \ufffd")


def test_rows_beside_graphql_errors_are_kept() -> None:
    answer = {"errors": [{"message": "in part"}], "data": {"batchCustomLink": [good(101)]}}
    assert [row.fail_code for row in read_answer(answer)] == [0, -1, -1]


CHECK = {"extensions": {"code": 90309999}}
ODD_ERRORS: list[Any] = [[{}], ["text"], "text", [None], [{"extensions": 5}]]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        *((PortalError, {"errors": errors, "data": None}) for errors in ODD_ERRORS),
        *(
            (SessionLost, {"errors": [{"message": "x", "extensions": {"code": code}}]})
            for code in (401, 403)
        ),
        (HumanCheck, {"errors": [{"message": "x"} | CHECK], "data": None}),
        (HumanCheck, {"errors": [CHECK], "data": {"batchCustomLink": [None, None]}}),
        (HumanCheck, {"errors": [{"message": "x"}, {"extensions": {"code": "90309999"}}]}),
        (HumanCheck, {"data": {"batchCustomLink": [{"failCode": 90309999}]}}),
        (HumanCheck, {"data": {"error": 90309999}}),
        (PortalDown, {"code": 0}),
    ],
)
def test_answer_without_rows_raises_its_error(error: type[Exception], answer: Any) -> None:
    with pytest.raises(error):
        read_answer(answer)


def test_made_links_beside_check_code_are_kept() -> None:
    made = {"data": {"batchCustomLink": [good(101), {"failCode": 90309999}]}}
    assert [row.fail_code for row in read_answer(made | {"errors": [CHECK]})] == [0, -1, -1]
