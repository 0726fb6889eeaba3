"""The answer to a submit, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smartlinkd.marketplace.answers import (
    UNKNOWN_ROW,
    FailCode,
    Row,
    clean_short_link,
    fail_code_of,
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
from smartlinkd.marketplace.portal_page import PageAnswer

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
    response = PageAnswer(200, CALL, "application/json", json.dumps(answer))
    return parse_links_answer(response, asked=asked, sub_ids=("a", "b"), market=VN)


def only(row: Any) -> Row:
    return read([row], asked=[Product(11, 101)])[0]


def test_rows_come_in_the_order_of_the_request() -> None:
    rows = read([good(101, shortLink=f"{SHORT}1"), good(102), good(103, shortLink=f"{SHORT}3")])
    assert rows == [
        Row(f"{SHORT}1", long_link(101), FailCode.SUCCESS, 0),
        Row(SHORT, long_link(102), FailCode.SUCCESS, 0),
        Row(f"{SHORT}3", long_link(103), FailCode.SUCCESS, 0),
    ]


@pytest.mark.parametrize("rows", [None, [], [good(101)], [good(101), good(102)]])
def test_missing_rows_are_unknown_errors(rows: Any) -> None:
    found = read(rows)
    came = len(rows or [])
    assert [row.fail_code for row in found] == [0] * came + [-1] * (3 - came)


@pytest.mark.parametrize("data", [None, {}, {"batchCustomLink": None}, {"other": []}])
def test_an_answer_without_rows_is_unknown_for_each(data: Any) -> None:
    assert read_answer({"code": 0, "data": data}) == [UNKNOWN_ROW] * 3


def test_more_rows_than_links_answer_another_question() -> None:
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
        ("odd", -1, None),
        ([], -1, None),
    ],
)
def test_the_portals_code_is_mapped_and_kept(said: Any, ours: int, kept: int | None) -> None:
    row = only(good(101, failCode=said))
    assert (row.fail_code, row.portal_code) == (ours, kept)
    assert (row.short_link is None) == (ours != 0)


@pytest.mark.parametrize("row", [None, 5, "x", [], {"failCode": 1}])
def test_a_row_that_is_none_is_an_unknown_error(row: Any) -> None:
    assert only(row).fail_code is FailCode.UNKNOWN


@pytest.mark.parametrize(
    "short",
    [
        "",
        None,
        5,
        "s.shopee.vn/abc",
        "javascript:alert(1)",
        "https://",
        "https://[",
        SHORT + "\ud83d",
        long_link(101),
        "https://shopee.vn/product/11/101",
        "https://shopee.vn/universal-link?redir=https%3A%2F%2Fshopee.vn%2Fproduct%2F11%2F101",
    ],
)
def test_a_success_without_a_short_link_is_none(short: Any) -> None:
    row = only(good(101, shortLink=short))
    assert row == Row(None, None, FailCode.UNKNOWN, 0)


def test_a_long_link_never_stands_in_for_the_short_one() -> None:
    strange = "https://other.example/x"
    assert only(good(101, shortLink=strange, longLink=strange)).short_link is None


@pytest.mark.parametrize("long", ["", None, 5, "not a link", "javascript:x", f"{SHORT}/\ud83d"])
def test_a_missing_long_link_costs_nothing(long: Any) -> None:
    assert only(good(101, longLink=long)) == Row(SHORT, None, FailCode.SUCCESS, 0)


def test_an_item_is_the_one_that_was_asked_for_in_whatever_shop_it_is_by_now() -> None:
    moved = long_link(101).replace("/product/11/", "/product/12/")
    assert only(good(101, longLink=moved)) == Row(SHORT, moved, FailCode.SUCCESS, 0)


def test_a_long_link_to_another_item_is_no_success() -> None:
    rows = read([good(101), good(999), good(103)])
    assert [row.fail_code for row in rows] == [0, -1, 0]


@pytest.mark.parametrize("counted", ["a", "a-b-c--", "b-a---", "----", ""])
def test_a_link_that_counts_under_other_sub_ids_is_no_success(
    counted: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = long_link(101).replace("=a-b---", f"={counted}")
    assert only(good(101, longLink=other)) == Row(None, None, FailCode.UNKNOWN, 0)
    assert "other sub-ids" in caplog.text


@pytest.mark.parametrize("counted", ["=a-b", "=A-b---", "s=none", "=a_b"])
def test_sub_ids_are_compared_as_far_as_the_long_link_has_them(counted: str) -> None:
    same = long_link(101).replace("=a-b---", counted)
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
def test_only_the_landing_pages_parameter_goes(given: str, kept: str) -> None:
    assert clean_short_link(given, VN) == kept


@pytest.mark.parametrize("data", [None, {"batchCustomLink": None}, {"batchCustomLink": []}])
def test_an_error_of_graphql_is_one_of_the_whole_call(data: Any) -> None:
    errors = [{"message": "sandbox:\nrefused", "extensions": {"code": 90000}}]
    with pytest.raises(PortalError, match="sandbox: refused") as caught:
        read_answer({"errors": errors, "data": data})
    assert caught.value.code == 90000


@pytest.mark.parametrize("errors", [[{}], ["text"], "text", [None], [{"extensions": 5}]])
def test_odd_errors_are_errors(errors: Any) -> None:
    with pytest.raises(PortalError):
        read_answer({"errors": errors, "data": None})


def test_the_message_of_an_error_is_bounded() -> None:
    with pytest.raises(PortalError) as caught:
        read_answer({"errors": [{"message": "x" * 100_000}]})
    assert len(caught.value.detail) <= 300


def test_half_a_character_in_it_is_shown_as_one_that_is_lost() -> None:
    with pytest.raises(PortalError) as caught:
        read_answer({"errors": [{"message": "refused \ud83d"}]})
    assert caught.value.detail == "refused \ufffd"


def test_rows_count_more_than_errors_beside_them() -> None:
    answer = {"errors": [{"message": "in part"}], "data": {"batchCustomLink": [good(101)]}}
    assert [row.fail_code for row in read_answer(answer)] == [0, -1, -1]


@pytest.mark.parametrize(
    ("code", "error"), [(401, SessionLost), (403, SessionLost), (90309999, HumanCheck)]
)
def test_graphql_can_carry_the_portals_refusals(code: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        read_answer({"errors": [{"message": "x", "extensions": {"code": code}}], "data": None})


@pytest.mark.parametrize(
    "answer",
    [
        {"errors": [{"extensions": {"code": 90309999}}], "data": {"batchCustomLink": [None, None]}},
        {"errors": [{"message": "x"}, {"extensions": {"code": "90309999"}}], "data": None},
        {"data": {"batchCustomLink": [{"failCode": 90309999}]}},
        {"data": {"error": 90309999}},
    ],
)
def test_risk_control_is_seen_wherever_it_is_in_the_answer(answer: Any) -> None:
    with pytest.raises(HumanCheck):
        read_answer(answer)


def test_links_that_were_made_are_not_lost_to_it() -> None:
    made = {"data": {"batchCustomLink": [good(101), {"failCode": 90309999}]}}
    beside = {"errors": [{"extensions": {"code": 90309999}}]}
    assert [row.fail_code for row in read_answer(made | beside)] == [0, -1, -1]


def test_neither_data_nor_errors_is_a_fault_of_the_portal() -> None:
    with pytest.raises(PortalDown):
        read_answer({"code": 0})


@pytest.mark.parametrize(
    ("portal", "ours"),
    [
        (0, FailCode.SUCCESS),
        (None, FailCode.SUCCESS),
        (2, FailCode.INVALID_LINK),
        (1, FailCode.UNKNOWN),
        *((code, FailCode.UNKNOWN) for code in (3, 4, 5, 6, 7)),
        (99, FailCode.UNKNOWN),
        (-1, FailCode.UNKNOWN),
        (40300, FailCode.UNKNOWN),
    ],
)
def test_each_code_of_the_portal(portal: int | None, ours: FailCode) -> None:
    assert fail_code_of(portal) is ours


def test_the_numbers_are_those_that_clients_were_promised() -> None:
    assert {code.value for code in FailCode} == {0, -1, 10, 40300}
