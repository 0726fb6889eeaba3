"""The lines of all accounts: one each, bounded together, and forgotten in the right order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account import Account, Standing
from smartlinkd.conversion.account_queue import Line, Lines
from smartlinkd.errors import Unavailable
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import parse_cookie
from tests.conversion.conftest import COOKIE, line_of, waiting

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, FakeLinks

OTHER = parse_cookie("SPC_U=2002; SPC_EC=first")


def lines_of(links: FakeLinks, nursery: trio.Nursery, limit: int) -> Lines:
    def make(account: Account) -> Line:
        return line_of(links.create, nursery, chunk=1, account=account)

    return Lines(make, {}, queue=2, changed=lambda _: None, limit=limit)


@pytest.fixture
def lines(links: FakeLinks, nursery: trio.Nursery) -> Lines:
    return lines_of(links, nursery, limit=3)


async def test_an_account_has_one_line(lines: Lines) -> None:
    assert lines.of("a") is lines.of("a")
    assert lines.of("a") is not lines.of("b")


async def test_accounts_are_served_at_the_same_time(
    lines: Lines, links: FakeLinks, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = [ask(waiting(lines.of(cookie.account), 1, cookie)) for cookie in (COOKIE, OTHER)]
    await trio.sleep(5)
    assert [one.at for one in asked] == [1, 1]
    assert links.times == [0, 0]


async def test_the_queue_is_bounded_over_all_accounts(
    lines: Lines, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    for cookie in (COOKIE, OTHER):
        ask(waiting(lines.of(cookie.account), 1, cookie))
    await wait_all_tasks_blocked()  # one submit of each is under way
    ask(waiting(lines.of("1001"), 2, COOKIE))
    lines.check_room()
    ask(waiting(lines.of("2002"), 2, OTHER))
    assert lines.submits_waiting() == 2
    with pytest.raises(
        Unavailable, match=r"2 submits are waiting already \(browser\.queue\)"
    ) as no:
        lines.check_room()
    assert no.value.retry_after > 0
    await trio.sleep(1.5)
    lines.check_room()


async def test_states_of_all_accounts(lines: Lines) -> None:
    lines.of("a").pause(HumanCheck(), None)
    lines.of("b")
    states = lines.states()
    assert {account: state.standing for account, state in states.items()} == {
        "a": Standing.PAUSED,
        "b": Standing.ACTIVE,
    }


async def test_clearing_all_counts_those_that_had_been_stopped(
    lines: Lines, links: FakeLinks, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    links.script = [SessionLost()]
    ask(waiting(lines.of("1001"), 1, COOKIE))
    await trio.sleep(5)
    lines.of("a").pause(HumanCheck(), None)
    lines.of("b")
    assert lines.clear_all() == 2
    assert {state.standing for state in lines.states().values()} == {Standing.ACTIVE}
    assert lines.clear_all() == 0


async def test_up_to_the_limit_no_line_goes(links: FakeLinks, nursery: trio.Nursery) -> None:
    lines = lines_of(links, nursery, limit=9)
    for account in "abcdefghi":
        lines.of(account)
    assert list(lines.states()) == list("abcdefghi")


async def test_beyond_the_limit_the_longest_unused_line_goes(lines: Lines) -> None:
    for account in "abc":
        lines.of(account)
    lines.of("a")
    lines.of("d")
    assert list(lines.states()) == ["c", "a", "d"]


@pytest.mark.parametrize("trouble", ["pause", "rest"])
async def test_an_account_without_trouble_goes_before_one_with(lines: Lines, trouble: str) -> None:
    if trouble == "pause":
        lines.of("a").pause(HumanCheck(), None)
    else:
        lines.of("a").leave_products_alone(900, None)
    for account in "bcd":
        lines.of(account)
    assert list(lines.states()) == ["a", "c", "d"]


async def test_a_pause_goes_last(lines: Lines) -> None:
    lines.of("a").pause(HumanCheck(), None)
    for account in "bcd":
        lines.of(account).account.lost_session(SessionLost(), None)
    assert list(lines.states()) == ["a", "c", "d"]


async def test_among_accounts_with_trouble_the_longest_unused_goes(lines: Lines) -> None:
    for account in "abcd":
        lines.of(account).pause(HumanCheck(), None)
    assert list(lines.states()) == ["b", "c", "d"]


async def test_a_line_at_work_stays_and_the_limit_holds_again_afterwards(
    lines: Lines, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    at_work = [parse_cookie(f"SPC_U={number}") for number in range(5)]
    asked = [ask(waiting(lines.of(cookie.account), 1, cookie)) for cookie in at_work]
    assert list(lines.states()) == list("01234")
    lines.of("new")
    assert list(lines.states()) == [*"01234", "new"]
    await trio.sleep(5)
    assert [one.at for one in asked] == [1] * 5
    lines.of("newer")
    assert list(lines.states()) == ["4", "new", "newer"]


async def test_an_account_that_was_forgotten_is_begun_anew_with_its_line(lines: Lines) -> None:
    before = lines.of("a")
    for account in "bcd":
        lines.of(account)
    lines.of("a").pause(HumanCheck(), None)
    assert lines.of("a") is not before
    assert lines.states()["a"].standing is Standing.PAUSED
