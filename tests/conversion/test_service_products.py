"""Product data: read once, remembered for a while, and never at the cost of a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.product_data import ProductLimits
from smartlinkd.conversion.request import Converted
from smartlinkd.conversion.sources import READ_WITHIN
from smartlinkd.errors import Refused, Unavailable
from smartlinkd.marketplace.errors import (
    AccountFrozen,
    HumanCheck,
    OpenApiBusy,
    OpenApiRefused,
    PortalDown,
    PortalSilent,
    ProductsDown,
    ProductsRefused,
    SessionLost,
)
from smartlinkd.vault.cookie import parse_cookie

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench, FakeProducts

RENEWED = parse_cookie("SPC_U=1001; SPC_EC=second")
REST = 900.0


@pytest.fixture
def products(bench: Bench) -> FakeProducts:
    assert bench.products is not None
    return bench.products


async def test_without_a_source_there_is_no_data(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench.products = None
    await bench.open(nursery)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1, data=False)}


async def test_data_is_read_of_what_was_converted_only(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=1)
    bench.links.script = [1.0, PortalDown("HTTP 500")]
    entries = await bench.convert(bench.link(1), bench.link(2))
    [made] = [link for link, entry in entries.items() if entry in (bench.entry(1), bench.entry(2))]
    assert products.items == [int(made[-1])]


async def test_data_of_several_products_is_read_at_the_same_time(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    products.seconds = 5.0
    await bench.open(nursery)
    await bench.convert(*map(bench.link, range(1, 4)))
    assert trio.current_time() == 6


async def test_data_is_read_in_the_session_of_the_cookie(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1))
    assert [cookie for cookie, _, _ in products.reads] == [bench.cookie]


async def test_data_that_takes_too_long_is_done_without(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    products.script = {1: bench.silent}
    await bench.open(nursery)
    entries = await bench.convert(bench.link(1), bench.link(2))
    assert entries == {
        bench.link(1): bench.entry(1, data=False),
        bench.link(2): bench.entry(2),
    }
    assert trio.current_time() == 1 + READ_WITHIN
    assert products.cut == [1]


async def test_a_source_that_says_nothing_is_not_waited_for_again_at_once(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """However long it would have been waited for by itself."""
    products.script = {1: bench.silent}
    await bench.open(nursery)
    await bench.convert(bench.link(1))
    products.script = {}
    before = trio.current_time()
    assert await bench.convert(bench.link(2)) == {bench.link(2): bench.entry(2, data=False)}
    assert trio.current_time() - before == 1
    assert products.items == [1]
    await trio.sleep(ProductLimits().silence_pause_s)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}


@pytest.mark.parametrize(
    "fault", [PortalDown("HTTP 500"), Unavailable("starting", retry_after=1), None]
)
async def test_data_that_cannot_be_had_is_null_and_tried_again(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    fault: Refused | None,
) -> None:
    service = await bench.open(nursery)
    products.script = {1: fault}
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1, data=False)}
    assert (await service.status()).remembered_products == 0
    products.script = {}
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}


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
async def test_after_a_refusal_no_data_is_read_for_a_while(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    refusal: Refused,
) -> None:
    await bench.open(nursery, refusal_pause_s=REST)
    products.script = {1: refusal}
    products.seconds = 0.0
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1, data=False)}
    refused_at = trio.current_time()
    products.script = {}
    assert await bench.convert(bench.link(2)) == {bench.link(2): bench.entry(2, data=False)}
    await trio.sleep(refused_at + REST - 0.1 - trio.current_time())
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1, data=False)}
    assert products.items == [1]
    await trio.sleep(0.1)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}


@pytest.mark.parametrize(
    "silence", [PortalSilent("no product data within 8 seconds"), ProductsDown("no page")]
)
async def test_after_a_silence_no_data_is_waited_for_a_minute(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    silence: Refused,
) -> None:
    await bench.open(nursery, refusal_pause_s=REST)
    products.script = {1: silence}
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1, data=False)}
    products.script = {}
    assert await bench.convert(bench.link(2)) == {bench.link(2): bench.entry(2, data=False)}
    assert products.items == [1]
    await trio.sleep(ProductLimits().silence_pause_s)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}


async def test_a_refusal_stops_the_reads_that_were_to_follow_it(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    products.script = {1: ProductsRefused("no"), 2: 5.0, 3: 5.0}
    entries = await bench.convert(*map(bench.link, (1, 2, 3)))
    assert entries == {bench.link(n): bench.entry(n, data=False) for n in (1, 2, 3)}
    assert trio.current_time() == 1.1
    assert sorted(products.cut) == [2, 3]


async def test_a_refusal_is_the_accounts_alone(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    products.script = {1: ProductsRefused("no")}
    await bench.convert(bench.link(1))
    other = parse_cookie("SPC_U=2002")
    assert await bench.convert(bench.link(2), cookie=other) == {
        bench.link(2): bench.entry(2, cookie=other)
    }


async def test_the_owner_ends_the_time_for_which_no_data_is_read(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    products.script = {1: ProductsRefused("no")}
    await bench.convert(bench.link(1))
    assert await service.clear_accounts() == 0  # the account itself was in no trouble
    assert await bench.convert(bench.link(2)) == {bench.link(2): bench.entry(2)}


async def test_remembered_data_is_served_while_reading_rests(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(2))
    products.script = {1: ProductsRefused("no")}
    await bench.convert(bench.link(1))
    assert await bench.convert(bench.link(2)) == {bench.link(2): bench.entry(2)}


async def test_a_human_check_pauses_the_account_and_costs_no_link(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery, chunk=2)
    products.script = {1: HumanCheck(), 2: 5.0}
    bench.links.script = [1.0, 9.0]
    # The third link's submit is under way by then, and is let through.
    assert await bench.convert(bench.link(1), bench.link(2)) == {
        bench.link(1): bench.entry(1, data=False),
        bench.link(2): bench.entry(2, data=False),
    }
    assert trio.current_time() == 1.1
    assert (await service.status()).accounts["1001"].status == "paused"
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(3))
    assert len(bench.links.submits) == 1
    await service.note_synced_cookie(bench.cookie, None)
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(3))
    await service.note_synced_cookie(RENEWED, None)
    assert await bench.codes(bench.link(3), cookie=RENEWED) == [0]


async def test_a_human_check_at_the_products_refuses_the_links_that_wait(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    products.script = dict.fromkeys(range(1, 6), HumanCheck())
    await bench.open(nursery, chunk=1)
    codes = await bench.codes(*map(bench.link, range(1, 6)))
    # The first is converted, the second is being submitted as the check comes.
    assert sorted(codes) == [0, 0, 40300, 40300, 40300]
    assert len(bench.links.submits) == 2
    assert len(products.reads) == 1


# SingleFlight and remembered


async def test_the_same_product_is_read_once_for_all_who_want_it_at_the_same_time(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    ask: Ask[Any],
    autojump_clock: MockClock,
) -> None:
    await bench.open(nursery)
    products.seconds = 3.0
    asked = [
        ask(lambda sub_id=sub_id: bench.convert(bench.link(1), sub_ids=(sub_id,)))  # type: ignore[misc]
        for sub_id in "ab"
    ]
    await trio.sleep(20)
    assert [one.answer for one in asked] == [
        {bench.link(1): bench.entry(1, (sub_id,))} for sub_id in "ab"
    ]
    assert products.items == [1]


@pytest.mark.usefixtures("any_order")
async def test_who_comes_as_a_read_ends_gets_its_data(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    ask: Ask[Any],
    autojump_clock: MockClock,
) -> None:
    await bench.open(nursery)
    products.seconds = 1.0
    ask(lambda: bench.convert(bench.link(1)))
    await trio.sleep(1.5)
    # Its product has waited for the short link long enough at the very moment the read ends.
    bench.resolver.slow = {bench.short("slow"): 3.0}
    asked = ask(lambda: bench.convert(bench.link(1), bench.short("slow")))
    await trio.sleep(5)
    assert asked.answer[bench.link(1)] == bench.entry(1)
    assert products.items == [1]


async def test_data_is_remembered_for_ten_minutes_and_then_read_again(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    products.seconds = 0.0
    await bench.convert(bench.link(1))
    await trio.sleep(599.9)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}
    assert len(products.reads) == 1
    await trio.sleep(0.1)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}
    assert len(products.reads) == 2


async def test_one_cookies_data_is_not_another_ones(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    for cookie in (bench.cookie, RENEWED):
        await bench.convert(bench.link(1), cookie=cookie)
    assert [cookie for cookie, _, _ in products.reads] == [bench.cookie, RENEWED]


async def test_a_source_that_needs_no_cookie_gets_none_and_serves_all_alike(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    products.needs_cookie = False
    await bench.open(nursery)
    for cookie in (bench.cookie, RENEWED):
        assert await bench.convert(bench.link(1), cookie=cookie) == {
            bench.link(1): bench.entry(1, cookie=cookie)
        }
    assert [cookie for cookie, _, _ in products.reads] == [None]


async def test_with_no_cookie_at_all_a_source_that_needs_none_is_asked(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench.links.needs_cookie = products.needs_cookie = False
    await bench.open(nursery)
    assert await bench.convert(bench.link(1), cookie=None) == {
        bench.link(1): bench.entry(1, cookie=None)
    }


async def test_a_source_that_needs_a_cookie_is_not_asked_without_one(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench.links.needs_cookie = False
    await bench.open(nursery)
    assert await bench.convert(bench.link(1), cookie=None) == {
        bench.link(1): bench.entry(1, cookie=None, data=False)
    }
    assert products.reads == []


async def test_a_read_goes_on_for_those_who_still_wait(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    ask: Ask[Any],
    autojump_clock: MockClock,
) -> None:
    products.seconds = 3.0
    await bench.open(nursery)
    first, second = (ask(lambda: bench.convert(bench.link(1))) for _ in range(2))
    await trio.sleep(2)
    first.leave()
    await second.over.wait()
    assert second.answer == {bench.link(1): bench.entry(1)}
    assert (products.items, products.cut) == ([1], [])


async def test_a_read_that_nobody_waits_for_is_cancelled(
    bench: Bench,
    products: FakeProducts,
    nursery: trio.Nursery,
    ask: Ask[Any],
    autojump_clock: MockClock,
) -> None:
    products.seconds = 3.0
    await bench.open(nursery)
    asked = ask(lambda: bench.convert(bench.link(1)))
    await trio.sleep(2)
    asked.leave()
    await wait_all_tasks_blocked()
    assert products.cut == [1]


async def test_reads_that_wait_for_each_other_are_no_silence(
    bench: Bench, products: FakeProducts, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """As of pages that are opened one after the other."""
    products.at_once, products.seconds = 1, 4.0
    await bench.open(nursery)
    links = [bench.link(n) for n in (1, 2, 3)]
    entries = await bench.convert(*links)
    data = [one.product is not None for one in entries.values() if isinstance(one, Converted)]
    assert sorted(data) == [False, True, True]
    assert (await bench.convert(bench.link(4)))[bench.link(4)] == bench.entry(4)
