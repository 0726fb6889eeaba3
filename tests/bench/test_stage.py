"""What counts as converted: nothing is measured of an answer that left something out."""

from __future__ import annotations

from typing import Any

import pytest

from bench.stage import check_converted

ONE, TWO = "https://shop.example/product/1/1", "https://shop.example/product/1/2"


def made(short: str) -> dict[str, Any]:
    return {"failCode": 0, "shortLink": short}


def test_each_link_with_a_short_one_of_its_own_is_converted() -> None:
    check_converted(
        [ONE, TWO], {ONE: made("https://s.example/a"), TWO: made("https://s.example/b")}
    )


@pytest.mark.parametrize(
    "mapping",
    [
        {},
        {ONE: made("https://s.example/a")},
        {
            ONE: made("https://s.example/a"),
            "https://elsewhere.example/": made("https://s.example/b"),
        },
        {ONE: made("https://s.example/a"), TWO: made("https://s.example/a")},
        {ONE: made("https://s.example/a"), TWO: made("")},
        {ONE: made("https://s.example/a"), TWO: {"failCode": 1, "message": "not one of ours"}},
    ],
    ids=["nothing", "one is missing", "another one", "one for both", "empty", "refused"],
)
def test_anything_less_is_not(mapping: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="became"):
        check_converted([ONE, TWO], mapping)
