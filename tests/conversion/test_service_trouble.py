"""When not all is well: what is answered part-way, what is raised, what a pause stops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account import AccountStatus
from smartlinkd.conversion.request import ConversionRequest, Converted, Failed
from smartlinkd.errors import Refused, Unavailable, UpstreamFailed
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import FailCode, Row
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.vault.cookie import parse_cookie

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench

RENEWED = parse_cookie("SPC_U=1001; SPC_EC=second")
OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")
FOREIGN = "https://example.org/a-thing-i.7.1"
PATIENCE = 60.0
MAX_REQUESTS = 20

BUSY = Unavailable("the browser is starting", retry_after=2)
DOWN = PortalDown("HTTP 500")


# Part-way


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(SessionLost(), 40300), (HumanCheck(), 40300), (DOWN, -1), (BUSY, -1)],
    ids=["session lost", "human check", "portal down", "browser gone"],
)
async def test_what_was_converted_is_answered_and_the_rest_says_why_not(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, refusal: Refused, code: int
) -> None:
    await bench.open(nursery, chunk=2)
    bench.links.script = [1.0, refusal, refusal]
    links = [bench.link(number) for number in range(1, 6)]
    codes = await bench.codes(*links, FOREIGN)
    assert sorted(codes[:5]) == sorted([0, 0, code, code, code])
    assert codes[5] == 10


@pytest.mark.parametrize("check", [HumanCheck(), SessionLost()])
async def test_after_a_lost_session_or_a_human_check_the_rest_is_not_submitted(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, check: Refused
) -> None:
    await bench.open(nursery, chunk=1)
    bench.links.script = [1.0, check]
    await bench.codes(*map(bench.link, range(1, 6)))
    assert len(bench.links.submits) == 2


async def test_a_remembered_link_is_answered_beside_a_lost_session(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1))
    bench.links.script = [SessionLost()]
    assert await bench.codes(bench.link(1), bench.link(2)) == [0, 40300]


# Nothing converted


@pytest.mark.parametrize("refusal", [SessionLost(), HumanCheck(), DOWN, BUSY])
async def test_with_nothing_converted_the_refusal_is_the_requests(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock, refusal: Refused
) -> None:
    await bench.open(nursery)
    bench.links.script = [refusal]
    with pytest.raises(type(refusal)) as caught:
        await bench.convert(FOREIGN, bench.link(1), bench.link(2))
    assert caught.value is refusal


@pytest.mark.parametrize(
    ("refusals", "gravest"),
    [
        ([BUSY, DOWN, HumanCheck()], HumanCheck),
        ([BUSY, DOWN, SessionLost()], SessionLost),
        ([BUSY, DOWN], PortalDown),
        ([DOWN, BUSY], PortalDown),
    ],
)
async def test_of_several_refusals_the_gravest_is_raised(
    bench: Bench,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    refusals: list[Refused],
    gravest: type[Refused],
) -> None:
    await bench.open(nursery, chunk=1)
    bench.links.script = list(refusals)
    with pytest.raises(Refused) as caught:
        await bench.convert(*[bench.link(number + 1) for number in range(len(refusals))])
    assert type(caught.value) is gravest
    assert len(bench.links.submits) == len(refusals)


async def test_a_human_check_is_graver_than_a_lost_session(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short("two"): bench.item(2)}
    bench.resolver.slow = {bench.short("two"): 5.0}
    bench.links.script = [SessionLost(), HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1), bench.short("two"))


async def test_rows_that_all_failed_are_an_answer_and_no_refusal(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.links.script = [[Row(None, None, FailCode.UNKNOWN)] * 2]
    assert await bench.codes(bench.link(1), bench.link(2)) == [-1, -1]


async def test_a_failed_row_beside_a_refusal_does_not_hide_it(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=1)
    bench.links.script = [[Row(None, None, FailCode.INVALID_LINK)], lost := SessionLost()]
    with pytest.raises(SessionLost) as caught:
        await bench.convert(bench.link(1), bench.link(2))
    assert caught.value is lost


async def test_row_too_few_is_a_bug_and_ends_the_service(
    autojump_clock: MockClock, bench: Bench
) -> None:
    with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await bench.open(nursery)
            bench.links.script = [[]]
            with pytest.raises(Unavailable):
                await bench.convert(bench.link(1))


# Deadlines


async def test_what_is_still_queued_at_the_deadline_is_unavailable(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, timeout_s=PATIENCE)
    bench.links.script = [bench.silent]
    first = ask(lambda: bench.convert(bench.link(1)))
    await wait_all_tasks_blocked()
    second = ask(lambda: bench.convert(bench.link(2), FOREIGN))
    await trio.sleep(2 * PATIENCE)
    assert isinstance(second.refusal, Unavailable)
    assert second.refusal.retry_after > 0
    assert (first.at, second.at) == (PATIENCE, PATIENCE)


async def test_an_upstream_that_is_silent_until_the_deadline_has_failed(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, timeout_s=PATIENCE, chunk=1)
    bench.links.script = [bench.silent]
    asked = ask(lambda: bench.convert(bench.link(1), bench.link(2)))
    await trio.sleep(2 * PATIENCE)
    assert isinstance(asked.refusal, UpstreamFailed)
    assert asked.at == PATIENCE
    assert len(bench.links.cut) == 1


async def test_short_links_that_are_silent_until_the_deadline_have_failed(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, timeout_s=PATIENCE)
    bench.resolver.slow = {bench.short("one"): bench.silent}
    asked = ask(lambda: bench.convert(bench.short("one")))
    await trio.sleep(2 * PATIENCE)
    assert isinstance(asked.refusal, UpstreamFailed)
    assert bench.resolver.at_work == 0


async def test_what_is_there_at_the_deadline_is_answered_and_the_rest_is_unknown(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, timeout_s=PATIENCE, chunk=2)
    bench.links.script = [1.0, bench.silent]
    links = [FOREIGN, *map(bench.link, range(1, 5))]
    asked = ask(lambda: bench.codes(*links))
    await trio.sleep(2 * PATIENCE)
    assert asked.at == PATIENCE
    assert asked.answer[0] == 10
    assert sorted(asked.answer[1:]) == [-1, -1, 0, 0]


async def test_at_the_deadline_a_link_counts_although_its_product_data_is_not_there_yet(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    assert bench.products is not None
    bench.products.seconds = 5.0
    await bench.open(nursery, timeout_s=3.0)
    asked = ask(lambda: bench.convert(bench.link(1)))
    await trio.sleep(20)
    assert asked.answer == {bench.link(1): bench.entry(1, data=False)}
    assert asked.at == 3


async def test_deadline_includes_the_wait_for_a_restarting_service(
    bench: Bench, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    bench.make(timeout_s=PATIENCE)
    asked = ask(lambda: bench.convert(bench.link(1)))
    await trio.sleep(2 * PATIENCE)
    assert isinstance(asked.refusal, Unavailable)
    assert asked.at == PATIENCE + 1


async def test_service_that_starts_after_the_deadline_begins_nothing(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = bench.make(timeout_s=PATIENCE)
    asked = ask(lambda: bench.convert(bench.link(1), bench.short("one")))
    await trio.sleep(PATIENCE + 0.5)
    await nursery.start(service.run)
    await asked.over.wait()
    assert isinstance(asked.refusal, Unavailable)
    assert bench.resolver.asked == []


# Paused


async def test_a_paused_account_is_answered_from_memory_and_asks_nobody(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    assert bench.products is not None
    await bench.open(nursery)
    remembered = await bench.convert(bench.link(1))
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2))
    submits, reads = len(bench.links.submits), len(bench.products.reads)
    assert await bench.convert(bench.link(1)) == remembered
    assert await bench.codes(bench.link(1), bench.link(2)) == [0, 40300]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2), bench.link(3))
    assert (len(bench.links.submits), len(bench.products.reads)) == (submits, reads)


async def test_a_paused_accounts_short_links_are_not_followed_but_remembered_ones_known(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    bench.resolver.known = {bench.short(name): bench.item(1) for name in ("one", "two")}
    remembered = await bench.convert(bench.short("one"))
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2))
    assert await bench.convert(bench.short("one")) == remembered
    with pytest.raises(HumanCheck):
        await bench.convert(bench.short("two"))
    assert await bench.codes(bench.short("two"), bench.link(1), FOREIGN) == [40300, 0, 10]
    assert bench.resolver.asked == [bench.short("one")]
    assert await bench.codes(bench.short("two"), cookie=OTHER) == [0]


async def test_a_paused_account_reads_no_products_for_remembered_links(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    assert bench.products is not None
    await bench.open(nursery, product_ttl_s=10)
    await bench.convert(bench.link(1))
    await trio.sleep(10)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2))
    assert await bench.convert(bench.link(1)) == {bench.link(1): bench.entry(1, data=False)}
    assert bench.products.items == [1]


async def test_a_pause_is_the_accounts_alone(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1))
    assert await bench.codes(bench.link(1), cookie=OTHER) == [0]
    with pytest.raises(HumanCheck):  # of the account, whatever the cookie
        await bench.convert(bench.link(1), cookie=RENEWED)
    statuses = {account: it.status for account, it in (await service.status()).accounts.items()}
    assert statuses == {"1001": "paused", "2002": "active"}


async def test_a_new_cookie_ends_a_pause_and_the_same_one_does_not(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    for cookie in (OTHER, bench.cookie):
        with pytest.raises(HumanCheck):
            await bench.convert(bench.link(1))
        await service.note_synced_cookie(cookie, None)
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1))
    await service.note_synced_cookie(RENEWED, None)
    assert await bench.codes(bench.link(1), cookie=RENEWED) == [0]


async def test_new_cookie_that_keeps_the_pause_does_not_end_it(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1))
    assert await service.note_synced_cookie(RENEWED, bench.cookie, keep_pause=True) is True
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1), cookie=RENEWED)
    assert await service.note_synced_cookie(RENEWED, RENEWED) is False  # by its owner
    assert await bench.codes(bench.link(1), cookie=RENEWED) == [0]


async def test_cookie_that_keeps_a_pause_ends_a_lost_session(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [SessionLost()]
    with pytest.raises(SessionLost):
        await bench.convert(bench.link(1))
    assert await service.note_synced_cookie(RENEWED, bench.cookie, keep_pause=True) is False
    states = (await service.status()).accounts.values()
    assert [state.status for state in states] == [AccountStatus.ACTIVE]


async def test_pause_of_account_without_user_id_outlasts_a_cookie_that_keeps_it(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first, second = (parse_cookie(f"SPC_EC={which}") for which in ("first", "second"))
    service = await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1), cookie=first)
    await service.note_synced_cookie(second, first, keep_pause=True)
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1), cookie=first)


async def test_each_change_of_account_is_told_and_logged(
    bench: Bench, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    service = await bench.open(nursery)
    other = parse_cookie("SPC_U=2002; SPC_EC=x")
    await service.note_synced_cookie(bench.cookie, None)
    await service.note_synced_cookie(RENEWED, bench.cookie)
    assert bench.replaced == []
    await service.note_synced_cookie(other, RENEWED)
    await service.note_synced_cookie(bench.cookie, other)
    assert bench.replaced == [("1001", "2002"), ("2002", "1001")]
    told = [each for each in caplog.records if "another account's" in each.getMessage()]
    assert [getattr(each, "event", None) for each in told] == [LogEvent.ACCOUNT_REPLACED] * 2


async def test_an_account_without_a_user_id_ends_with_its_cookie(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    first, second = (parse_cookie(f"SPC_EC={which}") for which in ("first", "second"))
    service = await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1), cookie=first)
    await service.note_synced_cookie(second, first)
    statuses = {it.status for it in (await service.status()).accounts.values()}
    assert statuses == {"active"}


async def test_replaced_account_is_not_listed_until_it_is_used_again(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    await service.note_synced_cookie(bench.cookie, None)
    await bench.convert(bench.link(1))
    await service.note_synced_cookie(RENEWED, bench.cookie)  # of the same account
    assert list((await service.status()).accounts) == ["1001"]
    await service.note_synced_cookie(OTHER, RENEWED)
    assert list((await service.status()).accounts) == ["2002"]
    await bench.convert(bench.link(2))
    assert sorted((await service.status()).accounts) == ["1001", "2002"]
    await service.note_synced_cookie(RENEWED, OTHER)
    assert list((await service.status()).accounts) == ["1001"]


@pytest.mark.parametrize("trouble", [HumanCheck, SessionLost])
async def test_replaced_account_in_trouble_is_listed_until_the_owner_clears_it(
    bench: Bench,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    trouble: type[HumanCheck | SessionLost],
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [trouble()]
    with pytest.raises(trouble):
        await bench.convert(bench.link(1))
    await service.note_synced_cookie(OTHER, bench.cookie)
    statuses = {account: it.status for account, it in (await service.status()).accounts.items()}
    lost = trouble is SessionLost
    assert statuses == {"1001": "session lost" if lost else "paused", "2002": "active"}
    await service.clear_accounts()
    assert list((await service.status()).accounts) == ["2002"]


async def test_the_owner_ends_a_pause(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery)
    bench.links.script = [HumanCheck()]
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(1))
    assert await service.clear_accounts() == 1
    assert await bench.codes(bench.link(1)) == [0]


# Full


async def test_a_full_queue_refuses_a_request_as_a_whole_and_serves_what_is_remembered(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery, chunk=1, max_waiting_submits=2)
    await bench.convert(bench.link(1))
    bench.links.seconds = 30.0
    for number in (2, 3, 4):
        ask(lambda number=number: bench.convert(bench.link(number)))  # type: ignore[misc]
    await wait_all_tasks_blocked()
    assert (await service.status()).waiting_submits == 2
    with pytest.raises(Unavailable, match=r"browser\.queue"):
        await bench.convert(FOREIGN, bench.link(5), bench.link(6))
    assert await bench.codes(bench.link(1), FOREIGN) == [0, 10]
    assert (await service.status()).waiting_submits == 2


async def test_a_request_that_finds_room_gets_all_its_links_in(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=1, max_waiting_submits=1)
    assert await bench.codes(*map(bench.link, range(1, 16))) == [0] * 15


async def test_requests_at_the_same_moment_do_not_get_past_the_bound_together(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery, chunk=1, max_waiting_submits=4)
    asked = [
        ask(lambda number=number: bench.codes(bench.link(number), bench.link(number + 1)))  # type: ignore[misc]
        for number in range(1, 41, 2)
    ]
    await wait_all_tasks_blocked()
    assert (await service.status()).waiting_submits in (4, 5)
    await trio.sleep(30)
    refused = [one for one in asked if isinstance(one.refusal, Unavailable)]
    served = [one for one in asked if one.refusal is None]
    assert [one.answer for one in served] == [[0, 0]] * len(served)
    assert len(served) in (2, 3)
    assert len(served) + len(refused) == 20


async def test_service_full_of_requests_refuses_one_more_and_still_reports_its_status(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    service = await bench.open(nursery, max_requests=MAX_REQUESTS, timeout_s=PATIENCE)
    bench.links.script = [bench.silent]
    order = ConversionRequest((bench.link(1),), (), bench.cookie)
    asked = []
    for _ in range(MAX_REQUESTS):
        asked.append(ask(lambda: service.convert(order)))
    await wait_all_tasks_blocked()
    with pytest.raises(Unavailable, match=str(MAX_REQUESTS)):
        await service.convert(order)
    status = await service.status()
    await service.note_synced_cookie(RENEWED, None)
    assert await service.clear_accounts() == 0
    assert status.waiting_requests == MAX_REQUESTS
    assert trio.current_time() == 0
    await trio.sleep(2 * PATIENCE)
    assert {type(one.refusal) for one in asked} == {UpstreamFailed}


async def test_pause_outlives_a_restart_of_the_service(
    bench: Bench, autojump_clock: MockClock
) -> None:
    service = bench.make()
    bench.links.script = [HumanCheck()]
    for _ in range(2):  # instances
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            with pytest.raises(HumanCheck):
                await bench.convert(bench.link(1))
            assert len(bench.links.submits) == 1
            nursery.cancel_scope.cancel()


# What a request makes of all this is never a half-made entry


async def test_no_entry_is_both_made_and_failed(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=1)
    bench.links.script = [1.0, [Row(None, None, FailCode.UNKNOWN)], DOWN]
    entries = await bench.convert(*map(bench.link, range(1, 4)))
    kinds = sorted(type(entry).__name__ for entry in entries.values())
    assert kinds == ["Converted", "Failed", "Failed"]
    for entry in entries.values():
        assert isinstance(entry, Converted) or (isinstance(entry, Failed) and entry.fail_code != 0)
