"""A human check that is shown to a tab by itself: its account is paused in that moment."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account import AccountStatus
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.vault.cookie import parse_cookie

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench

RENEWED = parse_cookie("SPC_U=1001; SPC_EC=second")
OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")


async def status(bench: Bench) -> dict[str, AccountStatus]:
    return {name: each.status for name, each in (await bench.service.status()).accounts.items()}


async def test_an_account_is_paused_as_soon_as_a_check_is_seen(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery)
    await bench.convert(bench.link(1))
    bench.human_checks.report(bench.cookie)
    await wait_all_tasks_blocked()
    assert await status(bench) == {"1001": AccountStatus.PAUSED}
    with pytest.raises(HumanCheck):
        await bench.convert(bench.link(2))
    assert len(bench.links.submits) == 1
    await bench.convert(bench.link(2), cookie=OTHER)
    assert await bench.service.clear_accounts() == 1
    await bench.convert(bench.link(2))


async def test_a_new_cookie_ends_it_and_the_one_of_the_check_does_not(
    bench: Bench, nursery: trio.Nursery
) -> None:
    await bench.open(nursery)
    bench.human_checks.report(bench.cookie)
    await wait_all_tasks_blocked()
    await bench.service.note_synced_cookie(bench.cookie, bench.cookie)
    assert await status(bench) == {"1001": AccountStatus.PAUSED}
    await bench.service.note_synced_cookie(RENEWED, bench.cookie)
    assert await status(bench) == {"1001": AccountStatus.ACTIVE}


async def test_what_an_old_tab_of_a_replaced_cookie_shows_pauses_nobody(
    bench: Bench, nursery: trio.Nursery
) -> None:
    """Its context may be warm for minutes, also when the owner has answered the check since."""
    await bench.open(nursery)
    await bench.service.note_synced_cookie(RENEWED, bench.cookie)
    await bench.service.clear_accounts()
    bench.human_checks.report(bench.cookie)
    await wait_all_tasks_blocked()
    assert AccountStatus.PAUSED not in (await status(bench)).values()
    await bench.service.note_synced_cookie(bench.cookie, RENEWED)
    bench.human_checks.report(bench.cookie)
    await wait_all_tasks_blocked()
    assert await status(bench) == {"1001": AccountStatus.PAUSED}


@pytest.mark.parametrize("while_it_is_used", [True, False])
async def test_one_that_is_used_though_it_was_replaced_counts(
    bench: Bench, ask: Ask[object], nursery: trio.Nursery, *, while_it_is_used: bool
) -> None:
    await bench.open(nursery)
    if while_it_is_used:
        ask(lambda: bench.convert(bench.link(1)))
        await wait_all_tasks_blocked()
    await bench.service.note_synced_cookie(RENEWED, bench.cookie)
    if not while_it_is_used:
        ask(lambda: bench.convert(bench.link(1)))
    await wait_all_tasks_blocked()
    bench.human_checks.report(bench.cookie)
    await wait_all_tasks_blocked()
    assert await status(bench) == {"1001": AccountStatus.PAUSED}


async def test_those_who_wait_are_refused_and_who_is_at_the_portal_is_answered(
    bench: Bench, ask: Ask[object], nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await bench.open(nursery, chunk=1)
    sent = ask(lambda: bench.convert(bench.link(1), sub_ids=("sent",)))
    await wait_all_tasks_blocked()
    waits = ask(lambda: bench.convert(bench.link(2), sub_ids=("waits",)))
    await wait_all_tasks_blocked()
    bench.human_checks.report(bench.cookie)
    await waits.over.wait()
    assert isinstance(waits.refusal, HumanCheck)
    assert not sent.over.is_set()
    await sent.over.wait()
    assert sent.refusal is None
    assert len(bench.links.submits) == 1


async def test_check_reported_while_the_service_restarts_pauses_the_account(
    bench: Bench, nursery: trio.Nursery
) -> None:
    service = bench.make()
    bench.human_checks.report(bench.cookie)
    bench.human_checks.report(OTHER)
    await nursery.start(service.run)
    await wait_all_tasks_blocked()
    assert await status(bench) == {"1001": AccountStatus.PAUSED, "2002": AccountStatus.PAUSED}


async def test_one_that_is_seen_twice_is_told_once(
    bench: Bench, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.open(nursery)
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            bench.human_checks.report(bench.cookie)
            await wait_all_tasks_blocked()
    (told,) = caplog.records
    assert told.__dict__["event"] is LogEvent.ACCOUNT_PAUSED
