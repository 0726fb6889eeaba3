"""A request's way when all is well: links are read, gathered, converted once and remembered."""

from __future__ import annotations

import hashlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.request import Converted, Failed
from smartlinkd.errors import Invalid
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.vault import record as vault_record
from smartlinkd.vault.actor import Vault
from smartlinkd.vault.cookie import parse_cookie

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench

DAY = 86_400.0
RENEWED = parse_cookie("SPC_U=1001; SPC_EC=second")
FOREIGN = "https://example.org/a-thing-i.7.1"


# Entries


async def test_each_link_gets_its_entry_in_the_order_of_the_links(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known[bench.short("two")] = bench.item(2)
    links = [bench.link(3), FOREIGN, bench.short("two"), bench.short("dead"), bench.link(1)]
    entries = await bench.convert(*links)
    assert list(entries.items()) == [
        (links[0], bench.entry(3)),
        (links[1], Failed(10)),
        (links[2], bench.entry(2)),
        (links[3], Failed(10)),
        (links[4], bench.entry(1)),
    ]


async def test_blanks_around_a_link_are_no_part_of_it_but_of_its_key(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    assert await bench.convert(f" {bench.link(1)}\r\n") == {f" {bench.link(1)}\r\n": bench.entry(1)}


async def test_nothing_is_sent_upstream_for_what_is_no_link(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    assert await bench.codes(FOREIGN, "", "javascript:alert(1)", "https://shopee.vn/") == [10] * 4
    assert bench.links.submits == []
    assert bench.resolver.asked == []
    assert trio.current_time() == 0


async def test_two_forms_of_one_product_are_converted_once(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    forms = [bench.link(1), "shopee.vn/product/7/1", "https://shopee.vn/product/7/1?gclid=5"]
    assert await bench.convert(*forms) == dict.fromkeys(forms, bench.entry(1))
    assert [submit.products for submit in bench.links.submits] == [(bench.item(1),)]


async def test_a_link_given_twice_is_one_entry(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known[bench.short("one")] = bench.item(1)
    links = [bench.short("one"), bench.short("one"), bench.link(2), bench.link(2)]
    entries = await bench.convert(*links)
    assert entries == {links[0]: bench.entry(1), links[2]: bench.entry(2)}
    assert bench.links.submitted == [{1, 2}]


async def test_the_portals_code_for_a_link_is_its_failcode(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.links.script = [[Row(None, None, FailCode.INVALID_LINK)]]
    assert await bench.codes(bench.link(1)) == [10]


async def test_without_a_long_link_the_short_one_stands_for_it(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.links.script = [[Row("https://s.shopee.vn/x", None, FailCode.SUCCESS)]]
    [entry] = (await bench.convert(bench.link(1))).values()
    assert isinstance(entry, Converted)
    assert (entry.short_link, entry.long_link) == ("https://s.shopee.vn/x",) * 2


async def test_a_success_without_a_link_is_no_success(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.links.script = [[Row(None, None, FailCode.SUCCESS)]]
    assert await bench.codes(bench.link(1)) == [-1]


async def test_sub_ids_and_cookie_are_handed_on(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1), sub_ids=("a", "", "c"))
    [submit] = bench.links.submits
    assert (submit.cookie, submit.sub_ids) == (bench.cookie, ("a", "", "c"))


async def test_without_a_cookie_nothing_is_done(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    assert service.needs_cookie
    with pytest.raises(Invalid, match=r"^cookie: "):
        await bench.convert(bench.short("a"), bench.link(1), cookie=None)
    assert bench.links.submits == []
    assert bench.resolver.asked == []


@pytest.mark.parametrize("cookie", [None, RENEWED], ids=["none stored", "one stored"])
async def test_a_source_that_needs_no_cookie_gets_none(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, cookie: Any
) -> None:
    bench.links.needs_cookie = False
    service = await bench.open(nursery)
    assert not service.needs_cookie
    assert await bench.codes(bench.link(1), cookie=cookie) == [0]
    assert [submit.cookie for submit in bench.links.submits] == [None]
    assert "open api" in (await service.status()).accounts


# Short links and what is gathered


@pytest.mark.usefixtures("any_order")
async def test_products_wait_for_the_short_links_so_that_all_share_a_submit(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short("two"): bench.item(2), bench.short("three"): bench.item(3)}
    bench.resolver.slow = {bench.short("three"): 0.4}
    await bench.convert(bench.link(1), bench.short("two"), bench.short("three"))
    assert bench.links.submitted == [{1, 2, 3}]
    assert bench.links.times == [0.4]


@pytest.mark.usefixtures("any_order")
async def test_products_do_not_wait_for_a_short_link_longer_than_half_a_second(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short("two"): bench.item(2), bench.short("three"): bench.item(3)}
    bench.resolver.slow = {bench.short("three"): 2.0}
    await bench.convert(bench.link(1), bench.short("two"), bench.short("three"))
    assert bench.links.submitted == [{1, 2}, {3}]
    assert bench.links.times == [0.5, 2.0]


@pytest.mark.usefixtures("any_order")
async def test_products_alone_do_not_wait(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1), FOREIGN, bench.link(2))
    assert bench.links.submitted == [{1, 2}]
    assert bench.links.times == [0]


@pytest.mark.usefixtures("any_order")
async def test_a_short_link_that_fails_holds_the_products_up_no_longer(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1), bench.short("dead"))
    assert bench.links.times == [0.1]


@pytest.mark.usefixtures("any_order")
async def test_a_remembered_short_link_holds_nobody_up(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, ttl_s=DAY)
    bench.resolver.known = {bench.short("two"): bench.item(2)}
    await bench.convert(bench.short("two"))
    began = trio.current_time()
    await bench.convert(bench.link(1), bench.short("two"), sub_ids=("new",))
    assert bench.links.submits[-1].items == {1, 2}
    assert bench.links.submits[-1].at == began


async def test_a_slow_short_link_of_another_request_holds_nobody_up(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.slow = {bench.short("slow"): 30.0}
    ask(lambda: bench.convert(bench.short("slow")))
    await wait_all_tasks_blocked()
    await bench.convert(bench.link(1))
    assert bench.links.times == [0]


async def test_a_short_link_is_resolved_once_for_all_who_want_it_at_the_same_time(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short("one"): bench.item(1)}
    forms = [bench.short("one"), "s.shopee.vn/one?from=app"]
    asked = [ask(lambda: bench.convert(*forms)) for _ in range(3)]
    await trio.sleep(10)
    assert [one.answer for one in asked] == [dict.fromkeys(forms, bench.entry(1))] * 3
    assert bench.resolver.asked == [bench.short("one")]


async def test_what_a_short_link_stands_for_is_remembered(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, ttl_s=100)
    bench.resolver.known = {bench.short("one"): bench.item(1)}
    for _ in range(2):
        assert await bench.codes(bench.short("one")) == [0]
    assert len(bench.resolver.asked) == 1
    await trio.sleep(100)
    assert await bench.codes(bench.short("one")) == [0]
    assert len(bench.resolver.asked) == 2


@pytest.mark.parametrize("code", [FailCode.INVALID_LINK, FailCode.UNKNOWN])
async def test_a_short_link_that_led_nowhere_is_tried_again(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, code: FailCode
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short("one"): code}
    assert await bench.codes(bench.short("one")) == [code]
    bench.resolver.known = {bench.short("one"): bench.item(1)}
    assert await bench.codes(bench.short("one")) == [0]


# What is remembered


async def test_a_converted_link_is_remembered_for_its_time(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, ttl_s=DAY, product_ttl_s=2 * DAY)
    await bench.convert(bench.link(1))
    made_at = trio.current_time()
    await trio.sleep(DAY - 10)
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1)}
    assert trio.current_time() < made_at + DAY
    assert len(bench.links.submits) == 1
    await trio.sleep(10)
    await bench.convert(bench.link(1))
    assert len(bench.links.submits) == 2


async def test_what_is_remembered_is_bounded(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery, max_cached=2, max_cached_products=3)
    await bench.convert(*map(bench.link, range(1, 6)))
    status = await service.status()
    assert (status.remembered_links, status.remembered_products) == (2, 3)


@pytest.mark.parametrize(
    "other", [{"sub_ids": ("a",)}, {"cookie": RENEWED}], ids=["sub-ids", "cookie of the account"]
)
async def test_another_cookie_or_other_sub_ids_share_nothing(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, other: dict[str, Any]
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1))
    entries = await bench.convert(bench.link(1), **other)
    assert entries == {bench.link(1): bench.entry(1, **other)}
    assert len(bench.links.submits) == 2


@pytest.mark.parametrize("code", [FailCode.INVALID_LINK, FailCode.UNKNOWN])
async def test_a_failure_is_not_remembered(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, code: FailCode
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [[Row(None, None, code)]]
    assert await bench.codes(bench.link(1)) == [code]
    assert (await service.status()).remembered_links == 0
    assert await bench.codes(bench.link(1)) == [0]


@pytest.mark.usefixtures("any_order")
async def test_who_comes_as_a_submit_ends_gets_its_links_and_no_submit_of_their_own(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    ask(lambda: bench.convert(bench.link(1)))
    await trio.sleep(0.5)
    # Its product has waited for the short link long enough at the very moment the submit ends.
    bench.resolver.slow = {bench.short("slow"): 3.0}
    asked = ask(lambda: bench.convert(bench.link(1), bench.short("slow")))
    await trio.sleep(5)
    assert asked.answer[bench.link(1)] == bench.entry(1)
    assert bench.links.submitted == [{1}]


async def test_a_status_counts_what_waits_and_what_is_remembered(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery, chunk=1)
    await bench.convert(bench.link(1), bench.link(2))
    for number in range(3, 6):
        ask(lambda number=number: bench.convert(bench.link(number)))  # type: ignore[misc]
    await wait_all_tasks_blocked()
    status = await service.status()
    assert (status.waiting_requests, status.waiting_submits) == (3, 2)
    assert (status.remembered_links, status.remembered_products) == (2, 2)
    assert {account: state.status for account, state in status.accounts.items()} == {
        "1001": "active"
    }
    await trio.sleep(10)
    status = await service.status()
    assert (status.waiting_requests, status.waiting_submits) == (0, 0)


async def test_the_stored_cookie_is_parsed_and_hashed_once(
    bench: Bench,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have 64 KB, and each of a request's links asks for it several times."""
    vault = Vault()
    await nursery.start(vault.run)
    await bench.open(nursery, ttl_s=0, product_ttl_s=0)
    await vault.store(bench.cookie.header(), "Shop")
    parsed = counted(monkeypatch, vault_record, "parse_cookie")
    hashed = counted(monkeypatch, hashlib, "sha256")
    for _ in range(2):
        record = await vault.current()
        assert record is not None
        links = map(bench.link, range(1, 16))
        assert await bench.codes(*links, cookie=record.cookie) == [0] * 15
    assert len(bench.links.submits) == 6
    assert parsed == [bench.cookie.header()]
    assert hashed == [bench.cookie.header().encode()]


def counted(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str) -> list[object]:
    """What a function is called with from now on."""
    calls: list[object] = []
    called = getattr(module, name)

    def call(argument: object) -> object:
        calls.append(argument)
        return called(argument)

    monkeypatch.setattr(module, name, call)
    return calls
