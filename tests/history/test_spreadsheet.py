"""The CSV file: what a reader of CSV gets, and what a spreadsheet must not run."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

import pytest

from smartlinkd.history.model import Entry
from smartlinkd.history.spreadsheet import COLUMNS, head, lines
from smartlinkd.marketplace.products import FIELD_NAMES, ProductData


def entry(**different: object) -> Entry:
    usual: dict[str, object] = {
        "id": 1,
        "at": datetime(2026, 5, 4, 3, 2, 1, 5000, tzinfo=UTC),
        "client": "owner",
        "link": "https://shopee.vn/product/7/41",
        "short_link": "https://s.shopee.vn/abc",
        "long_link": "https://shopee.vn/long?a=b",
        "sub_ids": ("fb", "", "x"),
        "product": None,
    }
    return Entry(**(usual | different))  # type: ignore[arg-type]  # a dict has one type of value


def read(text: str) -> list[dict[str, str]]:
    assert text.startswith("\ufeff")
    return list(csv.DictReader(io.StringIO(text[1:], newline="")))


def link_cell(link: str) -> str:
    (row,) = read(head() + lines([entry(link=link)]))
    return row["link"]


def test_entry_without_product_has_empty_cells() -> None:
    (row,) = read(head() + lines([entry()]))
    assert row["at"] == "2026-05-04T03:02:01.005Z"
    assert [row[f"subId{number}"] for number in range(1, 6)] == ["fb", "", "x", "", ""]
    assert {row[name] for name in FIELD_NAMES} == {""}
    assert list(row) == list(COLUMNS)


def test_product_has_each_of_its_fields() -> None:
    product = ProductData(name='Áo, "đẹp"\nnhất', price=5, is_xtra=False, rating="4.8")
    (row,) = read(head() + lines([entry(product=product.model_dump_json(by_alias=True))]))
    assert row["name"] == 'Áo, "đẹp"\nnhất'
    assert (row["price"], row["isXtra"], row["rating"], row["cap"]) == ("5", "false", "4.8", "")
    assert set(FIELD_NAMES) < set(row)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+84", "'+84"),
        ("-5", "'-5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", "\t'=1"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ('"=1"', '\'"=1"'),
        ("＝1", "'＝1"),  # noqa: RUF001 - of the full width
        ("a;=1", "a;'=1"),
        ("a; =1", "a;' =1"),
        ('a";"=1', 'a";\'"=1'),
        ("a\n=1", "a\n'=1"),
        ("a\r\n-1", "a\r\n'-1"),
    ],
)
def test_text_that_would_begin_a_formula_has_an_apostrophe(text: str, cell: str) -> None:
    found = link_cell(text)
    assert found in (cell, f"'{cell}")
    assert found.replace("'", "") == text


@pytest.mark.parametrize(
    "text", ["a=b", "a - b", "https://shopee.vn/a-b?x=1&y=@z", "50% - 100%", "a, =b", "1;2", ""]
)
def test_other_text_is_as_it_was(text: str) -> None:
    assert link_cell(text) == text


def test_long_run_of_separators_is_read_in_no_time() -> None:
    assert link_cell("a" + ";\n" * 50_000) == "a" + ";\n" * 50_000
