"""A link that earns for somebody else is not given out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.conversion.account import Account, AffiliateIds
from smartlinkd.marketplace.answers import UNKNOWN_ROW, FailCode, Row
from smartlinkd.vault.cookie import parse_cookie

if TYPE_CHECKING:
    from tests.conversion.conftest import Bench

COOKIE = parse_cookie("SPC_U=1001; SPC_EC=x")
MAX_IDS = 16
FAILED = Row(None, None, FailCode.INVALID_LINK)


def made(number: int, name: str | None = "an_17") -> Row:
    source = f"&utm_source={name}" if name else ""
    long_link = f"https://shopee.vn/universal-link/product/7/{number}?utm_medium=x{source}"
    return Row(f"https://s.shopee.vn/{number}", long_link, FailCode.SUCCESS)


async def test_the_account_s_own_are_given_out(caplog: pytest.LogCaptureFixture) -> None:
    affiliate_ids = AffiliateIds("1001")
    rows = [made(1), FAILED, made(2), made(3, None)]
    assert affiliate_ids.reject_foreign(rows, COOKIE) == rows
    assert affiliate_ids.reject_foreign(rows[2:], COOKIE) == rows[2:]
    assert caplog.records == []


async def test_one_that_earns_for_somebody_else_is_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    affiliate_ids = AffiliateIds("1001")
    affiliate_ids.reject_foreign([made(1)], COOKIE)
    assert affiliate_ids.reject_foreign([made(2, "an_99"), made(3)], COOKIE) == [
        UNKNOWN_ROW,
        made(3),
    ]
    assert "earn for an_99, not for an_17" in caplog.text
    assert affiliate_ids.reject_foreign([made(4)], COOKIE) == [made(4)]


@pytest.mark.parametrize("names", [("an_99", "an_17", "an_17"), ("an_17", "an_99")])
async def test_of_the_first_ones_most_tell_who_earns(names: tuple[str, ...]) -> None:
    rows = [made(number, name) for number, name in enumerate(names, start=1)]
    own = [UNKNOWN_ROW if name == "an_99" else row for name, row in zip(names, rows, strict=True)]
    assert AffiliateIds("1001").reject_foreign(rows, COOKIE) == own


async def test_the_next_cookie_that_the_owner_syncs_earns_for_the_same() -> None:
    account = Account("1001", lambda _: None)
    account.affiliate_ids.reject_foreign([made(1)], COOKIE)
    renewed, other = (parse_cookie(f"SPC_U=1001; SPC_EC={each}") for each in ("y", "z"))
    account.note_synced_cookie(renewed, COOKIE)
    account.note_synced_cookie(other, None)
    foreign = [made(2, "an_99")]
    assert account.affiliate_ids.reject_foreign(foreign, renewed) == [UNKNOWN_ROW]
    assert account.affiliate_ids.reject_foreign(foreign, other) == foreign


async def test_the_owner_has_it_seen_anew() -> None:
    account = Account("1001", lambda _: None)
    account.affiliate_ids.reject_foreign([made(1)], COOKIE)
    account.clear()
    assert account.affiliate_ids.reject_foreign([made(2, "an_99")], COOKIE) == [made(2, "an_99")]


async def test_what_another_cookie_of_the_same_user_earns_for_tells_nothing(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    own, forged = bench.cookie, parse_cookie("SPC_U=1001; SPC_EC=of-another-session")
    bench.links.script = [[made(1, "an_99")], [made(2)], [made(3, "an_99")], [made(4)]]
    codes = []
    for number, cookie in enumerate((forged, own, own, own), start=1):
        codes.append(await bench.codes(bench.link(number), cookie=cookie))
    assert codes == [[0], [0], [-1], [0]]


async def test_of_so_many_cookies_it_is_known_and_the_longest_unused_is_forgotten() -> None:
    affiliate_ids = AffiliateIds("1001")
    cookies = [parse_cookie(f"SPC_U=1001; SPC_EC={number}") for number in range(MAX_IDS)]
    for cookie in cookies:
        affiliate_ids.reject_foreign([made(1)], cookie)
    affiliate_ids.reject_foreign([made(2)], cookies[0])
    affiliate_ids.reject_foreign([made(3)], COOKIE)
    foreign = [made(4, "an_99")]
    assert affiliate_ids.reject_foreign(foreign, cookies[0]) == [UNKNOWN_ROW]
    assert affiliate_ids.reject_foreign(foreign, cookies[1]) == foreign


async def test_it_is_not_remembered_either(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.links.script = [[made(1)], [made(2, "an_99")], [made(2)]]
    codes = [await bench.codes(bench.link(number)) for number in (1, 2, 2)]
    assert codes == [[0], [-1], [0]]
