"""The commission of one product."""

from __future__ import annotations

from decimal import Decimal

import pytest

from smartlinkd.marketplace.commission import Rates, commission


def rates(platform: str, seller: str) -> Rates:
    return Rates(platform=Decimal(platform), seller=Decimal(seller))


@pytest.mark.parametrize(
    ("price", "given", "cap", "parts", "text"),
    [
        # Worked out by hand on the marketplace's own pages.
        (122_200, ("0.045", "0.135"), 40_000, (5_499, 16_497, 21_996), "18%"),
        (84_600_000, ("0.04", "0"), 40_000, (40_000, 0, 40_000), "4%"),
        (5_290_000, ("0.07", "0.03"), 40_000, (40_000, 158_700, 198_700), "10%"),
        # Both parts end on half a unit, and each goes up by itself.
        (1_500, ("0.033", "0.007"), 40_000, (50, 11, 61), "4%"),
        (289_000, ("0.0455", "0.13"), 40_000, (13_150, 37_570, 50_720), "17.55%"),
        # The cap bounds the platform's part alone.
        (1_000_000, ("0.05", "0.5"), 15_000, (15_000, 500_000, 515_000), "55%"),
        (1_000_000, ("0.05", "0"), 50_000, (50_000, 0, 50_000), "5%"),
        (1_000_000, ("0.05", "0"), 50_001, (50_000, 0, 50_000), "5%"),
        (1_000_000, ("0.05", "0"), 0, (0, 0, 0), "5%"),
        (500_000, ("0", "0"), 40_000, (0, 0, 0), "0%"),
        (0, ("0.05", "0.05"), 40_000, (0, 0, 0), "10%"),
    ],
)
def test_worked_examples(
    price: int, given: tuple[str, str], cap: int, parts: tuple[int, int, int], text: str
) -> None:
    both = rates(*given)
    found = commission(Decimal(price), both, cap)
    assert (found.platform, found.seller, found.total) == parts
    assert both.text == text


@pytest.mark.parametrize(("seller", "xtra"), [("0", False), ("0.00001", True), ("0.135", True)])
def test_any_seller_part_is_extra(seller: str, *, xtra: bool) -> None:
    assert rates("0.04", seller).is_xtra is xtra


def test_the_parts_always_make_the_whole_and_keep_to_the_cap() -> None:
    for price in range(1_000, 2_000_000, 12_347):
        for thousandths in range(0, 200, 7):
            both = rates(f"0.{thousandths:03}", f"0.{199 - thousandths:03}")
            found = commission(Decimal(price), both, 40_000)
            assert found.total == found.platform + found.seller
            assert found.platform <= 40_000
            assert abs(found.seller - price * (199 - thousandths) / 1000) <= 0.5
