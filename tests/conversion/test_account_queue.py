"""Queues of accounts: submits merged, one at a time, bounded together; pauses and lost sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account import MAX_ACCOUNTS, Account, AccountStatus
from smartlinkd.conversion.account_queue import AccountQueue, AccountQueues
from smartlinkd.conversion.limits import ConversionLimits
from smartlinkd.conversion.sources import READS_AT_ONCE
from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogContext, bind_log_contexts, current_log_contexts
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import Cookie, parse_cookie
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
    from tests.conversion.conftest import Ask, FakeLinks, Fakes

Take = Callable[..., Any]


@pytest.fixture
def take(queue: AccountQueue, ask: Ask[Any]) -> Take:
    """Enqueue a link at once, and wait for its row in the background."""

    def start(number: int, sub_ids: tuple[str, ...] = (), cookie: Cookie | None = COOKIE) -> Any:
        return ask(waiting(queue, number, cookie, sub_ids=sub_ids))

    return start


# Merging


async def test_waiting_links_are_merged_up_to_the_chunk(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    asked = [take(number) for number in range(2, 9)]
    await trio.sleep(10)
    assert links.submitted == [{1}, {2, 3, 4}, {5, 6, 7}, {8}]
    assert links.times == [0, 1, 2, 3]
    assert [one.at for one in asked] == [2, 2, 2, 3, 3, 3, 4]


async def test_other_sub_ids_or_cookie_are_another_submit_in_their_turn(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    kinds: list[tuple[tuple[str, ...], Cookie]] = [
        (("a",), COOKIE),
        (("b",), COOKIE),
        (("b",), RENEWED),
    ]
    for number, kind in enumerate(kinds * 2, start=2):
        take(number, *kind)
        await wait_all_tasks_blocked()
    await trio.sleep(5)
    assert links.submitted == [{1}, {2, 5}, {3, 6}, {4, 7}]
    assert [(submit.sub_ids, submit.cookie) for submit in links.submits[1:]] == kinds


async def test_link_that_waited_longest_goes_before_a_larger_submit(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    take(2, ("lonely",))
    await wait_all_tasks_blocked()
    for number in (3, 4, 5):
        take(number)
    await trio.sleep(5)
    assert links.submitted == [{1}, {2}, {3, 4, 5}]


# Leaving


async def test_link_whose_asker_leaves_is_not_submitted(
    take: Take, queue: AccountQueue, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    gone, stays = take(2), take(3)
    await wait_all_tasks_blocked()
    gone.leave()
    await wait_all_tasks_blocked()
    assert queue.count_waiting_submits() == 1
    await trio.sleep(5)
    assert links.submitted == [{1}, {3}]
    assert stays.at == 2


async def test_submit_that_nobody_waits_for_is_cancelled(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [inf]
    leaving = [take(1), take(2), take(2)]
    await wait_all_tasks_blocked()
    stays = take(3)
    await trio.sleep(7)
    for one in leaving:
        one.leave()
    await stays.over.wait()
    assert [submit.items for submit in links.cut] == [{1, 2}]
    assert stays.at == 8


async def test_link_asked_again_after_a_cancelled_submit_is_submitted_anew(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.tidying = 3.0
    leaves = take(1)
    await trio.sleep(0.5)
    leaves.leave()
    await leaves.over.wait()
    asked = take(1)
    await trio.sleep(20)
    assert asked.at == 4.5
    assert links.submitted == [{1}, {1}]


PATIENCE = 10.0


async def test_submit_that_waited_for_the_browser_is_unavailable(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    """Nothing was sent, so there is nothing that the marketplace did not answer."""
    await fakes.open(timeout_s=PATIENCE)
    fakes.links.opening = 2 * PATIENCE
    with pytest.raises(Unavailable) as refused:
        await fakes.convert(fakes.link(1))
    assert refused.value.retry_after > 0
    assert fakes.links.submitted == []


OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")


@pytest.fixture
def queues(links: FakeLinks, nursery: trio.Nursery) -> AccountQueues:
    def make(account: Account) -> AccountQueue:
        return make_queue(links.create, nursery, chunk=1, account=account)

    return AccountQueues(make, {}, ConversionLimits(max_waiting_submits=2), lambda _: None)


async def test_waiting_submits_are_bounded_over_all_accounts(
    queues: AccountQueues, links: FakeLinks, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    for cookie in (COOKIE, OTHER):
        ask(waiting(queues.get(cookie.account), 1, cookie))
    await wait_all_tasks_blocked()
    assert links.times == [0, 0]  # one submit of each is under way
    ask(waiting(queues.get("1001"), 2, COOKIE))
    queues.check_room()
    ask(waiting(queues.get("2002"), 2, OTHER))
    assert queues.count_waiting_submits() == 2
    with pytest.raises(
        Unavailable, match=r"2 submits are waiting already \(browser\.queue\)"
    ) as no:
        queues.check_room()
    assert no.value.retry_after > 0
    await trio.sleep(1.5)
    queues.check_room()


async def test_clearing_all_counts_the_stopped_accounts(
    queues: AccountQueues, links: FakeLinks, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    links.script = [SessionLost()]
    ask(waiting(queues.get("1001"), 1, COOKIE))
    await trio.sleep(5)
    queues.get("a").pause(None)
    queues.get("b")
    assert queues.clear_all() == 2
    assert {state.status for state in queues.states().values()} == {AccountStatus.ACTIVE}
    assert queues.clear_all() == 0


MANY = [f"new {number}" for number in range(MAX_ACCOUNTS)]


async def test_least_recently_used_accounts_are_evicted_beyond_the_limit(
    queues: AccountQueues,
) -> None:
    for account in ("old", "used again", *MANY[2:], "used again", "newest"):
        queues.get(account).account.mark_used()
    assert list(queues.states()) == [*MANY[2:], "used again", "newest"]


async def test_paused_or_busy_account_is_not_evicted(
    queues: AccountQueues, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    queues.get("paused").pause(None)
    asked = ask(waiting(queues.get("1001"), 1, COOKIE))
    for account in MANY:
        queues.get(account).account.mark_used()
    assert list(queues.states()) == ["paused", "1001", *MANY[2:]]
    await asked.over.wait()
    queues.get("newest").account.mark_used()
    assert list(queues.states()) == ["paused", *MANY[2:], "newest"]


async def test_submit_logs_the_requests_of_all_its_links(
    links: FakeLinks, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    seen: list[set[str]] = []

    async def submit(*given: Any) -> Sequence[Row]:
        begun = current_log_contexts()
        try:
            return await links.create(*given)
        finally:
            seen.append({work.request_id for work in begun})

    async def want(request_id: str, number: int) -> None:
        with bind_log_contexts((LogContext(request_id=request_id),)):
            await queue.wait_for_row(enqueue(queue, number))

    queue = make_queue(submit, nursery, chunk=2)
    for request_id, number in (("a", 1), ("b", 2), ("c", 3), ("d", 2)):
        nursery.start_soon(want, request_id, number)
        await wait_all_tasks_blocked()
    await trio.sleep(0.5)  # the first is under way; another one joins it
    nursery.start_soon(want, "e", 1)
    await trio.sleep(10)
    assert seen == [{"a", "e"}, {"b", "c", "d"}]


# Paused


async def test_pause_refuses_submit_that_is_not_at_the_portal_yet_and_its_cookie_resumes(
    links: FakeLinks, queue: AccountQueue, take: Take, autojump_clock: MockClock
) -> None:
    links.opening = 1.0
    held = take(1, cookie=RENEWED)
    await trio.sleep(0.5)
    queue.pause(COOKIE)
    await held.over.wait()
    assert isinstance(held.refusal, HumanCheck)
    assert links.submitted == []
    queue.account.note_synced_cookie(RENEWED, COOKIE)
    assert queue.account.state.status is AccountStatus.ACTIVE


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
    asked = [take(1)]
    await wait_all_tasks_blocked()
    asked += [take(2), take(3, cookie=RENEWED), take(4)]
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


async def reading() -> int:
    await trio.sleep(1)
    return 1


async def test_products_are_read_up_to_the_limit_at_once(
    queue: AccountQueue, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = [ask(lambda: queue.read_product(reading)) for _ in range(READS_AT_ONCE + 1)]
    await trio.sleep(5)
    assert [one.at for one in asked].count(1) == READS_AT_ONCE
    assert [one.at for one in asked].count(2) == 1


async def test_pause_ends_reads_under_way_and_allows_no_more(
    queue: AccountQueue, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = ask(lambda: queue.read_product(reading))
    await trio.sleep(0.5)
    queue.pause(COOKIE)
    await asked.over.wait()
    assert (asked.refusal, asked.at) == (None, 0.5)
    assert await queue.read_product(reading) is None
