from __future__ import annotations

import re

import pytest

from smartlinkd.sandbox.shop import PRODUCT_PATHS
from smartlinkd.sandbox.shortlinks import CODES, code_named, product_behind

SHOP = "http://127.0.0.1:2"
SHORT = "http://127.0.0.1:3"


def walk(code: str) -> tuple[int, str]:
    """How many hops a follower makes, at most ten, and where it ends."""
    at, hops = f"{SHORT}/{code}", 0
    while at.startswith(f"{SHORT}/") and hops < 10:
        row = code_named(at.removeprefix(f"{SHORT}/"))
        to = row.address(shop_url=SHOP, short_url=SHORT)
        hops += 1
        if not to or "password" in row.head:
            return hops, ""
        at = SHORT + to if to.startswith("/") else to
    return hops, at


def product_at(url: str) -> tuple[int, int] | None:
    path = url.removeprefix(f"{SHOP}/").partition("?")[0]
    found = PRODUCT_PATHS.fullmatch(path) if url.startswith(f"{SHOP}/") else None
    numbers = re.findall(r"[0-9]+", path) if found else []
    return (int(numbers[-2]), int(numbers[-1])) if numbers else None


@pytest.mark.parametrize("row", CODES, ids=lambda row: row.code)
def test_code_ends_on_a_product_when_the_table_says_so(row: object) -> None:
    code, good = getattr(row, "code", ""), getattr(row, "good", False)
    hops, end = walk(code)

    assert (product_at(end) is not None and hops <= 5) == good


@pytest.mark.parametrize("row", [row for row in CODES if row.good], ids=lambda row: row.code)
def test_portal_knows_the_product_of_each_good_code(row: object) -> None:
    code = getattr(row, "code", "")

    assert product_behind(code) == product_at(walk(code)[1])


def test_any_product_has_a_short_link() -> None:
    assert product_at(walk("p12i3456")[1]) == product_behind("p12i3456") == (12, 3456)


@pytest.mark.parametrize("code", ["", "nonesuch", "dlink1", "p1", "p1i2x", "chain0", "chain10"])
def test_unknown_code_is_gone(code: str) -> None:
    assert code_named(code).status == 404
    assert product_behind(code) is None
