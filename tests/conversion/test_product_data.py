"""Product data: read once, remembered for a while, and never at the cost of a link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.sources import READ_WITHIN
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    HumanCheck,
    OpenApiBusy,
    OpenApiRefused,
    PortalDown,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.vault.cookie import Cookie, parse_cookie
from tests.conversion.conftest import COOKIE, RENEWED

if TYPE_CHECKING:
    from tests.conversion.conftest import Fakes

REST = 900.0


async def test_data_is_read_for_converted_links_alone(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    await fakes.open(chunk=1)
    fakes.links.script = [1.0, PortalDown("HTTP 500")]
    entries = await fakes.convert(fakes.link(1), fakes.link(2))
    [made] = [link for link, entry in entries.items() if entry in (fakes.entry(1), fakes.entry(2))]
    assert fakes.products.items == [int(made[-1])]


async def test_silent_data_is_null_after_its_time_and_not_asked_for_again_at_once(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    fakes.products.script = {1: fakes.silent}
    await fakes.open()
    entries = await fakes.convert(fakes.link(1), fakes.link(2))
    assert entries == {
        fakes.link(1): fakes.entry(1, data=False),
        fakes.link(2): fakes.entry(2),
    }
    assert trio.current_time() == 1 + READ_WITHIN
    assert fakes.products.cut == [1]
    fakes.products.script = {}
    assert await fakes.convert(fakes.link(3)) == {fakes.link(3): fakes.entry(3, data=False)}
    assert trio.current_time() == 1 + READ_WITHIN + 1
    assert sorted(fakes.products.items) == [1, 2]
    await trio.sleep(ConversionLimits().silence_pause_s)
    assert await fakes.convert(fakes.link(1)) == {fakes.link(1): fakes.entry(1)}


@pytest.mark.parametrize(
    "fault", [PortalDown("HTTP 500"), Unavailable("starting", retry_after=1), None]
)
async def test_failed_data_is_null_and_read_again(
    fakes: Fakes, autojump_clock: MockClock, fault: Refused | None
) -> None:
    service = await fakes.open()
    fakes.products.script = {1: fault}
    assert await fakes.convert(fakes.link(1)) == {fakes.link(1): fakes.entry(1, data=False)}
    assert (await service.status()).remembered_products == 0
    fakes.products.script = {}
    assert await fakes.convert(fakes.link(1)) == {fakes.link(1): fakes.entry(1)}


# Refused


@pytest.mark.parametrize(
    "refusal",
    [
        ProductsRefused("no"),
        SessionLost(),  # by a page that has to be opened first
        AccountFrozen(),
        OpenApiRefused("no"),
        OpenApiBusy(),
    ],
    ids=lambda refusal: type(refusal).__name__,
)
async def test_refusal_of_data_stops_reading_for_a_while(
    fakes: Fakes, autojump_clock: MockClock, refusal: Refused
) -> None:
    await fakes.open(refusal_pause_s=REST)
    fakes.products.script = {1: refusal}
    fakes.products.seconds = 0.0
    assert await fakes.convert(fakes.link(1)) == {fakes.link(1): fakes.entry(1, data=False)}
    refused_at = trio.current_time()
    fakes.products.script = {}
    assert await fakes.convert(fakes.link(2)) == {fakes.link(2): fakes.entry(2, data=False)}
    await trio.sleep(refused_at + REST - 0.1 - trio.current_time())
    assert await fakes.convert(fakes.link(1)) == {fakes.link(1): fakes.entry(1, data=False)}
    assert fakes.products.items == [1]
    await trio.sleep(0.1)
    assert await fakes.convert(fakes.link(1)) == {fakes.link(1): fakes.entry(1)}


@pytest.mark.parametrize(
    ("at_once", "others", "cut"), [(1, ProductsRefused("no"), []), (3, 5.0, [2, 3])]
)
async def test_refusal_of_data_ends_the_reads_that_run_or_wait(
    fakes: Fakes, autojump_clock: MockClock, at_once: int, others: Refused | float, cut: list[int]
) -> None:
    fakes.products.at_once = at_once
    fakes.products.script = {1: ProductsRefused("no"), 2: others, 3: others}
    await fakes.open()
    entries = await fakes.convert(*map(fakes.link, (1, 2, 3)))
    assert entries == {fakes.link(n): fakes.entry(n, data=False) for n in (1, 2, 3)}
    assert sorted(fakes.products.cut) == cut
    assert len(fakes.products.reads) == at_once


async def test_refusal_of_data_is_for_one_account_until_the_owner_ends_it(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    service = await fakes.open()
    fakes.products.script = {1: ProductsRefused("no")}
    await fakes.convert(fakes.link(1))
    other = parse_cookie("SPC_U=2002")
    assert await fakes.convert(fakes.link(2), cookie=other) == {
        fakes.link(2): fakes.entry(2, cookie=other)
    }
    assert await service.clear_accounts() == 0  # the account itself was in no trouble
    assert await fakes.convert(fakes.link(2)) == {fakes.link(2): fakes.entry(2)}


async def test_human_check_at_data_pauses_account_and_keeps_links(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    service = await fakes.open(chunk=2)
    fakes.products.script = {1: HumanCheck(), 2: 5.0}
    fakes.links.script = [1.0, 9.0]
    # The third link's submit is under way by then, and is let through.
    assert await fakes.convert(fakes.link(1), fakes.link(2)) == {
        fakes.link(1): fakes.entry(1, data=False),
        fakes.link(2): fakes.entry(2, data=False),
    }
    assert trio.current_time() == 1.1
    assert (await service.status()).accounts["1001"].status == "paused"
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(3))
    assert len(fakes.links.submits) == 1


# SingleFlight and remembered


@pytest.mark.parametrize(("needs_cookie", "reads"), [(True, [COOKIE, RENEWED]), (False, [None])])
async def test_data_of_one_cookie_is_another_cookies_only_if_the_source_needs_none(
    fakes: Fakes, autojump_clock: MockClock, needs_cookie: bool, reads: list[Cookie | None]
) -> None:
    fakes.products.needs_cookie = needs_cookie
    service = await fakes.open()
    for cookie in (COOKIE, RENEWED):
        assert await fakes.convert(fakes.link(1), cookie=cookie) == {
            fakes.link(1): fakes.entry(1, cookie=cookie)
        }
    assert [cookie for cookie, _, _ in fakes.products.reads] == reads
    assert list((await service.status()).accounts) == ["1001"]
