"""Numbers as the marketplace writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from smartlinkd.marketplace.values import (
    as_text,
    half_up,
    json_object,
    to_decimal,
    to_int,
    to_percent,
    to_text,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1]}', {"a": [1]}),
        ("{}", {}),
        ("[1]", None),
        ("null", None),
        ("<html>", None),
        ("", None),
        ("[" * 100_000, None),
    ],
    ids=["an object", "an empty one", "a list", "null", "a page", "nothing", "nested too deep"],
)
def test_json_object_is_read_or_none(text: str, value: object) -> None:
    assert json_object(text) == value


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (5, Decimal(5)),
        ("10290000000", Decimal(10290000000)),
        (" 4.5 ", Decimal("4.5")),
        (0.1, Decimal("0.1")),
        (4.876543209876543, Decimal("4.876543209876543")),
        ("-1", Decimal(-1)),
        ("0.0123", Decimal("0.0123")),
        (True, None),
        (None, None),
        ("", None),
        ("many", None),
        ("1,5", None),
        ("nan", None),
        ("Infinity", None),
        (float("inf"), None),
        ([1], None),
        ("9" * 41, None),
        ("1e999999999", None),
        ("1e-999999999", None),
        pytest.param(10**5000, None, id="too long to be spelled out"),
    ],
)
def test_to_decimal_reads_exactly_or_not_at_all(value: object, number: Decimal | None) -> None:
    assert to_decimal(value) == number


@pytest.mark.parametrize(
    ("value", "number"),
    [(7, 7), ("7", 7), ("7.0", 7), (7.0, 7), ("1e3", 1000), (7.5, None), ("x", None), (True, None)],
)
def test_to_int_reads_whole_numbers_only(value: object, number: int | None) -> None:
    assert to_int(value) == number


@pytest.mark.parametrize(
    ("value", "percent"),
    [
        *(("2,5%", "2.5"), ("18 %", "18"), ("0%", "0"), ("17.55%", "17.55")),
        *((value, None) for value in ("18", "%", "1,000.5%", 18, None)),
    ],
)
def test_to_percent_reads_text_with_a_percent_sign(value: object, percent: str | None) -> None:
    assert to_percent(value) == (None if percent is None else Decimal(percent))


@pytest.mark.parametrize(
    ("number", "whole"),
    [("10.5", 11), ("10.49999", 10), ("0.5", 1), ("11.5", 12), ("12.5", 13), ("7", 7)],
)
def test_half_up_rounds_halves_up(number: str, whole: int) -> None:
    assert half_up(Decimal(number)) == whole


@pytest.mark.parametrize(
    ("number", "places", "text"),
    [
        ("4.8", 1, "4.8"),
        ("5", 1, "5"),
        ("5.0", 1, "5"),
        ("4.95", 1, "5"),
        ("4.876543209876543", 1, "4.9"),
        ("0", 1, "0"),
        ("10", 1, "10"),
        ("100", 2, "100"),
        ("17.55", 2, "17.55"),
        ("17.5", 2, "17.5"),
        ("17.505", 2, "17.51"),
        ("1E+2", 2, "100"),
    ],
)
def test_as_text_rounds_and_drops_zeros(number: str, places: int, text: str) -> None:
    assert as_text(Decimal(number), places=places) == text


@pytest.mark.parametrize("text", ["9" * 21, f"{'9' * 21}.{'9' * 18}", "9.9e20", "-9.9e20"])
def test_largest_readable_numbers_can_be_rounded(text: str) -> None:
    number = to_decimal(text)
    assert number is not None
    assert abs(half_up(number * 1000)) >= 10**23
    assert as_text(number * 1000, places=2)


def test_to_text_trims_bounds_and_is_never_empty() -> None:
    assert to_text("  a b ") == "a b"
    assert to_text("   ") is None
    assert to_text(5) is None
    assert len(to_text("a" * 10_000) or "") == 2000
