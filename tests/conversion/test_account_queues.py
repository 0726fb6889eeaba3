"""The lines of all accounts: one each, bounded together, and forgotten in the right order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account import Account, AccountStatus
from smartlinkd.conversion.account_queue import AccountQueue, AccountQueues
from smartlinkd.errors import Unavailable
from smartlinkd.marketplace.errors import SessionLost
from smartlinkd.vault.cookie import parse_cookie
from tests.conversion.conftest import COOKIE, make_queue, waiting

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, FakeLinks

OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")


def make_queues(links: FakeLinks, nursery: trio.Nursery, limit: int) -> AccountQueues:
    def make(account: Account) -> AccountQueue:
        return make_queue(links.create, nursery, chunk=1, account=account)

    return AccountQueues(make, {}, max_waiting=2, on_change=lambda _: None, max_accounts=limit)


@pytest.fixture
def queues(links: FakeLinks, nursery: trio.Nursery) -> AccountQueues:
    return make_queues(links, nursery, limit=3)


async def test_an_account_has_one_queue(queues: AccountQueues) -> None:
    assert queues.get("a") is queues.get("a")
    assert queues.get("a") is not queues.get("b")


async def test_accounts_are_served_at_the_same_time(
    queues: AccountQueues, links: FakeLinks, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = [ask(waiting(queues.get(cookie.account), 1, cookie)) for cookie in (COOKIE, OTHER)]
    await trio.sleep(5)
    assert [one.at for one in asked] == [1, 1]
    assert links.times == [0, 0]


async def test_the_queue_is_bounded_over_all_accounts(
    queues: AccountQueues, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    for cookie in (COOKIE, OTHER):
        ask(waiting(queues.get(cookie.account), 1, cookie))
    await wait_all_tasks_blocked()  # one submit of each is under way
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


async def test_states_of_all_accounts(queues: AccountQueues) -> None:
    queues.get("a").pause(None)
    queues.get("b")
    states = queues.states()
    assert {account: state.status for account, state in states.items()} == {
        "a": AccountStatus.PAUSED,
        "b": AccountStatus.ACTIVE,
    }


async def test_clearing_all_counts_those_that_had_been_stopped(
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


async def test_no_account_is_evicted_up_to_the_limit(
    links: FakeLinks, nursery: trio.Nursery
) -> None:
    queues = make_queues(links, nursery, limit=9)
    for account in "abcdefghi":
        queues.get(account)
    assert list(queues.states()) == list("abcdefghi")


async def test_least_recently_used_account_is_evicted_beyond_the_limit(
    queues: AccountQueues,
) -> None:
    for account in "abc":
        queues.get(account)
    queues.get("a")
    queues.get("d")
    assert list(queues.states()) == ["c", "a", "d"]


async def test_paused_account_is_never_evicted(queues: AccountQueues) -> None:
    for account in "abcd":
        queues.get(account).pause(None)
    for account in "efgh":
        queues.get(account)
    assert list(queues.states()) == [*"abcd", "h"]


async def test_busy_account_is_not_evicted_and_the_limit_holds_again_afterwards(
    queues: AccountQueues, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    at_work = [parse_cookie(f"SPC_U={number}") for number in range(5)]
    asked = [ask(waiting(queues.get(cookie.account), 1, cookie)) for cookie in at_work]
    assert list(queues.states()) == list("01234")
    queues.get("new")
    assert list(queues.states()) == [*"01234", "new"]
    await trio.sleep(5)
    assert [one.at for one in asked] == [1] * 5
    queues.get("newer")
    assert list(queues.states()) == ["4", "new", "newer"]


async def test_evicted_account_begins_anew_with_a_new_queue(
    queues: AccountQueues,
) -> None:
    before = queues.get("a")
    for account in "bcd":
        queues.get(account)
    queues.get("a").pause(None)
    assert queues.get("a") is not before
    assert queues.states()["a"].status is AccountStatus.PAUSED
