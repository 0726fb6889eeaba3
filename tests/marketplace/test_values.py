"""Numbers as the marketplace writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from smartlinkd.marketplace.values import (
    to_decimal,
    to_percent,
    to_text,
)


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
    ("value", "percent"),
    [
        *(("2,5%", "2.5"), ("18 %", "18"), ("0%", "0"), ("17.55%", "17.55")),
        *((value, None) for value in ("18", "%", "1,000.5%", 18, None)),
    ],
)
def test_to_percent_reads_text_with_a_percent_sign(value: object, percent: str | None) -> None:
    assert to_percent(value) == (None if percent is None else Decimal(percent))


def test_to_text_trims_bounds_and_is_never_empty() -> None:
    assert to_text("  a b ") == "a b"
    assert to_text("   ") is None
    assert to_text(5) is None
    assert len(to_text("a" * 10_000) or "") == 2000
