"""How an account stands: paused, session lost, products left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.conversion.account import AccountStatus
from smartlinkd.conversion.account_queue import AccountQueue
from smartlinkd.conversion.sources import READS_AT_ONCE
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import parse_cookie
from tests.conversion.conftest import (
    COOKIE,
    RENEWED,
    enqueue,
    item,
    make_queue,
    row_of,
    waiting,
)

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Asked, FakeLinks


@pytest.fixture
def queue(links: FakeLinks, nursery: trio.Nursery) -> AccountQueue:
    return make_queue(links.create, nursery, chunk=1)


Take = Callable[..., "Asked[Row]"]


@pytest.fixture
def take(queue: AccountQueue, ask: Ask[Any]) -> Take:
    """Enqueue a link at once, and wait for its row in the background."""
    return lambda number, cookie=COOKIE: ask(waiting(queue, number, cookie))


# Paused


async def test_pause_refuses_submit_that_is_not_at_the_portal_yet(
    take: Take, queue: AccountQueue, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.opening = 2
    on_its_way = take(1)
    await trio.sleep(0.5)
    queue.pause(COOKIE)
    await trio.sleep(5)
    assert isinstance(on_its_way.refusal, HumanCheck)
    assert links.submits == []


async def test_cookie_that_met_a_check_does_not_resume_account(queue: AccountQueue) -> None:
    for cookie in (COOKIE, RENEWED, COOKIE):
        queue.pause(cookie)
    for cookie in (COOKIE, RENEWED):
        queue.account.note_synced_cookie(cookie, None)
        assert queue.account.state.status is AccountStatus.PAUSED
    assert queue.account.current_pause is not None
    assert queue.account.current_pause.cookies == (COOKIE.digest, RENEWED.digest)
    queue.account.note_synced_cookie(parse_cookie("SPC_U=1001; SPC_EC=third"), None)
    assert queue.account.state.status is AccountStatus.ACTIVE


async def test_superseded_cookie_does_not_resume_account(
    queue: AccountQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """An extension syncs it again and again, while another one has met a check."""
    oldest, stored, newest = (
        parse_cookie(f"SPC_U=1001; SPC_EC={name}") for name in ("oldest", "stored", "newest")
    )
    queue.account.note_synced_cookie(oldest, None)
    queue.account.note_synced_cookie(stored, oldest)
    queue.pause(RENEWED)
    for again in (stored, oldest, stored):
        queue.account.note_synced_cookie(again, stored)
        assert queue.account.state.status is AccountStatus.PAUSED
    assert caplog.text.count("stays paused") == 3
    queue.account.note_synced_cookie(newest, stored)
    assert queue.account.state.status is AccountStatus.ACTIVE


async def test_session_lost_during_a_pause_leaves_the_pause(
    take: Take, queue: AccountQueue, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [lost := SessionLost()]
    asked = take(1)
    await trio.sleep(0.5)
    queue.pause(COOKIE)
    await asked.over.wait()
    assert asked.refusal is lost
    assert queue.account.state.status is AccountStatus.PAUSED
    with pytest.raises(HumanCheck):
        enqueue(queue, 1)


# Session lost


async def test_lost_session_refuses_waiting_links_of_its_cookie_alone(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [lost := SessionLost()]
    asked = [take(1), take(2), take(3, RENEWED), take(4)]
    await trio.sleep(10)
    assert [one.refusal for one in asked] == [lost, lost, None, lost]
    assert [submit.cookie for submit in links.submits] == [COOKIE, RENEWED]


@pytest.mark.parametrize(
    ("rows", "status"),
    [
        ([row_of(item(2))], AccountStatus.ACTIVE),
        ([UNKNOWN_ROW], AccountStatus.SESSION_LOST),
    ],
)
async def test_lost_session_is_shown_until_a_link_is_made(
    take: Take,
    queue: AccountQueue,
    links: FakeLinks,
    autojump_clock: MockClock,
    *,
    rows: list[Row],
    status: AccountStatus,
) -> None:
    links.script = [lost := SessionLost(), rows]
    take(1)
    await trio.sleep(5)
    state = queue.account.state
    assert (state.status, state.reason) == (AccountStatus.SESSION_LOST, str(lost))
    asked = take(2)
    await trio.sleep(5)
    assert asked.at == 6
    assert queue.account.state.status is status


# Product data


class Reading:
    """Takes a second and gives 1."""

    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self) -> int:
        self.begun += 1
        await trio.sleep(1)
        return 1


def read(
    queue: AccountQueue, reading: Callable[[], Awaitable[int]]
) -> Callable[[], Awaitable[int | None]]:
    return lambda: queue.read_product(reading)


async def test_products_are_read_up_to_the_limit_at_once(
    queue: AccountQueue, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = [ask(read(queue, Reading())) for _ in range(READS_AT_ONCE + 1)]
    await trio.sleep(5)
    assert [one.at for one in asked].count(1) == READS_AT_ONCE
    assert [one.at for one in asked].count(2) == 1


async def test_pause_ends_reads_under_way_and_allows_no_more(
    queue: AccountQueue, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = ask(read(queue, Reading()))
    await trio.sleep(0.5)
    queue.pause(COOKIE)
    await asked.over.wait()
    assert (asked.refusal, asked.at) == (None, 0.5)
    assert await queue.read_product(Reading()) is None


async def test_cookie_that_never_reached_the_portal_resumes_account(
    links: FakeLinks, queue: AccountQueue, take: Take, autojump_clock: MockClock
) -> None:
    links.opening = 1.0
    held = take(1, RENEWED)
    await trio.sleep(0.5)
    queue.pause(COOKIE)
    await held.over.wait()
    assert isinstance(held.refusal, HumanCheck)
    assert links.submitted == []
    queue.account.note_synced_cookie(RENEWED, COOKIE)
    assert queue.account.state.status is AccountStatus.ACTIVE
