"""How an account stands: paused, session lost, products left alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.conversion.account import Account, Standing
from smartlinkd.conversion.account_queue import Line
from smartlinkd.conversion.pause_store import MOST_COOKIES, Pause
from smartlinkd.conversion.sources import READS_AT_ONCE
from smartlinkd.errors import UpstreamFailed
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import Cookie, parse_cookie
from tests.conversion.conftest import COOKIE, RENEWED, line_of, ticket_of, waiting

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Asked, FakeLinks


@pytest.fixture
def line(links: FakeLinks, nursery: trio.Nursery) -> Line:
    return line_of(links.create, nursery, chunk=1)


Take = Callable[..., "Asked[Row]"]


@pytest.fixture
def take(line: Line, ask: Ask[Any]) -> Take:
    """Takes a ticket at once and waits for its row in the background."""
    return lambda number, cookie=COOKIE: ask(waiting(line, number, cookie))


# Paused


async def test_the_refusal_of_a_paused_account_does_not_grow_with_those_who_raise_it(
    line: Line,
) -> None:
    line.pause(check := HumanCheck(), COOKIE)
    for number in range(3):
        with pytest.raises(HumanCheck):
            ticket_of(line, number)
    frames, traceback = 0, check.__traceback__
    while traceback is not None:
        frames, traceback = frames + 1, traceback.tb_next
    assert (
        frames == 4
    )  # the two of the last who asked (one is `ticket_of`), and the two of the line


async def test_a_human_check_refuses_the_submit_and_all_that_wait(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [check := HumanCheck()]
    asked = [take(1), take(2), take(3, RENEWED)]
    await trio.sleep(10)
    assert [one.refusal for one in asked] == [check] * 3
    assert [one.at for one in asked] == [1, 1, 1]
    assert links.submitted == [{1}]
    assert line.submits_waiting() == 0


@pytest.mark.parametrize("cookie", [COOKIE, RENEWED], ids=["the same", "another"])
async def test_a_paused_account_takes_no_tickets_with_any_cookie(
    line: Line, cookie: Cookie
) -> None:
    line.pause(check := HumanCheck(), COOKIE)
    with pytest.raises(HumanCheck) as caught:
        ticket_of(line, 1, cookie)
    assert caught.value is check
    assert not line.busy


async def test_a_pause_says_since_when_and_why(line: Line) -> None:
    line.pause(check := HumanCheck(), COOKIE)
    state = line.account.state
    assert (state.standing, state.reason) == (Standing.PAUSED, str(check))
    assert state.since.tzinfo is UTC
    line.pause(HumanCheck(), COOKIE)
    assert line.account.state == state  # since the first one


async def test_a_new_cookie_ends_a_pause(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    line.pause(HumanCheck(), COOKIE)
    line.account.cookie_synced(RENEWED, None)
    assert line.account.state.standing is Standing.ACTIVE
    assert line.account.state.reason is None
    asked = take(1, RENEWED)
    await trio.sleep(5)
    assert asked.at == 1


async def test_the_same_cookie_again_does_not_end_a_pause(line: Line) -> None:
    line.pause(HumanCheck(), COOKIE)
    line.account.cookie_synced(parse_cookie(COOKIE.header()), None)
    assert line.account.state.standing is Standing.PAUSED
    with pytest.raises(HumanCheck):
        ticket_of(line, 1)


async def test_the_owner_ends_a_pause(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    line.pause(HumanCheck(), COOKIE)
    assert line.account.clear() is True
    assert line.account.state.standing is Standing.ACTIVE
    asked = take(1)
    await trio.sleep(5)
    assert asked.at == 1


async def test_there_is_nothing_to_end_for_an_active_account(line: Line) -> None:
    before = line.account.state
    assert line.account.clear() is False
    assert line.account.state == before


async def test_a_pause_leaves_the_submit_under_way_its_result_and_stays(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    under_way, waits = take(1), take(2)
    await trio.sleep(0.5)
    line.pause(check := HumanCheck(), COOKIE)
    await trio.sleep(5)
    assert under_way.at == 1
    assert under_way.refusal is None
    assert waits.refusal is check
    assert links.submitted == [{1}]
    assert line.account.state.standing is Standing.PAUSED


async def test_a_pause_refuses_a_submit_that_is_not_at_the_portal_yet(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.opening = 2
    on_its_way = take(1)
    await trio.sleep(0.5)
    line.pause(check := HumanCheck(), COOKIE)
    await trio.sleep(5)
    assert on_its_way.refusal is check
    assert links.submits == []


async def test_no_cookie_that_has_met_a_check_ends_the_pause(line: Line) -> None:
    for cookie in (COOKIE, RENEWED, COOKIE):
        line.pause(HumanCheck(), cookie)
    for cookie in (COOKIE, RENEWED):
        line.account.cookie_synced(cookie, None)
        assert line.account.state.standing is Standing.PAUSED
    assert line.account.pause_to_keep is not None
    assert line.account.pause_to_keep.cookies == (COOKIE.digest, RENEWED.digest)
    line.account.cookie_synced(parse_cookie("SPC_U=1001; SPC_EC=third"), None)
    assert line.account.state.standing is Standing.ACTIVE


async def test_nor_does_one_that_was_stored_all_along(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    """An extension syncs it again and again, while another one has met a check."""
    oldest, stored, newest = (
        parse_cookie(f"SPC_U=1001; SPC_EC={name}") for name in ("oldest", "stored", "newest")
    )
    line.account.cookie_synced(oldest, None)
    line.account.cookie_synced(stored, oldest)
    line.pause(HumanCheck(), RENEWED)
    for again in (stored, oldest, stored):
        line.account.cookie_synced(again, stored)
        assert line.account.state.standing is Standing.PAUSED
    assert caplog.text.count("stays paused") == 3
    line.account.cookie_synced(newest, stored)
    assert line.account.state.standing is Standing.ACTIVE


async def test_one_of_which_was_not_heard_when_it_was_stored_ends_it(line: Line) -> None:
    """The vault had it, and this part was being restarted: the same is synced again."""
    line.account.cookie_synced(COOKIE, None)
    line.pause(HumanCheck(), COOKIE)
    line.account.cookie_synced(RENEWED, RENEWED)
    assert line.account.state.standing is Standing.ACTIVE


async def test_one_that_was_stored_for_a_pause_of_another_daemon_ends_it() -> None:
    """That it was ended could not be written down, and the same is synced again."""
    account = Account.from_earlier_process(
        Pause("1001", (COOKIE.digest,), datetime.now(UTC)), lambda _: None
    )
    account.cookie_synced(RENEWED, RENEWED)
    assert account.state.standing is Standing.ACTIVE


async def test_one_that_is_stored_while_another_meets_a_check_is_kept_with_that(line: Line) -> None:
    line.account.cookie_synced(COOKIE, None)
    line.pause(HumanCheck(), RENEWED)
    kept = line.account.pause_to_keep
    assert kept is not None
    account = Account.from_earlier_process(kept, lambda _: None)
    account.cookie_synced(COOKIE, COOKIE)
    assert account.state.standing is Standing.PAUSED


async def test_nor_does_one_that_was_stored_before_this_daemon(line: Line) -> None:
    line.pause(HumanCheck(), COOKIE)
    line.account.cookie_synced(RENEWED, RENEWED)
    assert line.account.state.standing is Standing.PAUSED


async def test_product_data_that_was_refused_does_not_change_which_cookie_a_pause_is_about(
    line: Line,
) -> None:
    line.pause(HumanCheck(), COOKIE)
    line.leave_products_alone(60, RENEWED)
    line.account.cookie_synced(COOKIE, None)
    assert line.account.state.standing is Standing.PAUSED


async def test_a_session_lost_by_the_submit_under_way_does_not_hide_a_pause(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [lost := SessionLost()]
    asked = take(1)
    await trio.sleep(0.5)
    line.pause(HumanCheck(), COOKIE)
    await asked.over.wait()
    assert asked.refusal is lost
    assert line.account.state.standing is Standing.PAUSED
    with pytest.raises(HumanCheck):
        ticket_of(line, 1)


# Session lost


async def test_a_lost_session_refuses_those_who_wait_with_its_cookie_only(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [lost := SessionLost()]
    asked = [take(1), take(2), take(3, RENEWED), take(4)]
    await trio.sleep(10)
    assert [one.refusal for one in asked] == [lost, lost, None, lost]
    assert [submit.cookie for submit in links.submits] == [COOKIE, RENEWED]


async def test_a_lost_session_is_shown_and_may_be_tried_again(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [lost := SessionLost()]
    take(1)
    await trio.sleep(5)
    assert (line.account.state.standing, line.account.state.reason) == (
        Standing.SESSION_LOST,
        str(lost),
    )
    asked = take(2)
    await trio.sleep(5)
    assert asked.at == 6
    assert line.account.state.standing is Standing.ACTIVE


async def test_an_answer_without_a_link_is_no_session(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [SessionLost(), [UNKNOWN_ROW]]
    take(1)
    await trio.sleep(5)
    asked = take(2)
    await trio.sleep(5)
    assert asked.at == 6
    assert line.account.state.standing is Standing.SESSION_LOST


async def test_a_new_cookie_ends_a_lost_session(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [SessionLost()]
    take(1)
    await trio.sleep(5)
    standings = []
    for cookie in (COOKIE, RENEWED):
        line.account.cookie_synced(cookie, None)
        standings.append(line.account.state.standing)
    assert standings == [Standing.SESSION_LOST, Standing.ACTIVE]


async def test_another_failure_says_nothing_of_the_account(
    take: Take, line: Line, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [UpstreamFailed("no")]
    take(1)
    await trio.sleep(5)
    assert line.account.state.standing is Standing.ACTIVE


# Product data


class Reading:
    """Takes a second and gives 1."""

    def __init__(self) -> None:
        self.begun = 0

    async def __call__(self) -> int:
        self.begun += 1
        await trio.sleep(1)
        return 1


def read(line: Line, reading: Callable[[], Awaitable[int]]) -> Callable[[], Awaitable[int | None]]:
    return lambda: line.read_product(COOKIE, reading)


async def test_products_are_read_beside_each_other_and_beside_submits(
    take: Take, line: Line, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = [take(1), ask(read(line, Reading())), ask(read(line, Reading()))]
    await trio.sleep(5)
    assert [one.at for one in asked] == [1, 1, 1]


async def test_only_so_many_products_are_read_at_a_time(
    line: Line, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = [ask(read(line, Reading())) for _ in range(READS_AT_ONCE + 1)]
    await trio.sleep(5)
    assert [one.at for one in asked].count(1) == READS_AT_ONCE
    assert [one.at for one in asked].count(2) == 1


async def test_a_paused_account_reads_no_products(line: Line, autojump_clock: MockClock) -> None:
    line.pause(HumanCheck(), COOKIE)
    reading = Reading()
    assert await line.read_product(COOKIE, reading) is None
    assert reading.begun == 0


async def test_products_are_left_alone_for_the_given_seconds(
    line: Line, autojump_clock: MockClock
) -> None:
    line.leave_products_alone(900, COOKIE)
    reading = Reading()
    await trio.sleep(899.9)
    assert await line.read_product(COOKIE, reading) is None
    assert reading.begun == 0
    await trio.sleep(0.1)
    assert await line.read_product(COOKIE, reading) == 1


async def test_links_go_on_while_products_are_left_alone(
    take: Take, line: Line, autojump_clock: MockClock
) -> None:
    line.leave_products_alone(900, COOKIE)
    asked = take(1)
    await trio.sleep(5)
    assert asked.at == 1
    assert line.account.leaves_products_alone(COOKIE)
    assert line.account.state.standing is Standing.ACTIVE


@pytest.mark.parametrize("trouble", ["pause", "rest"])
async def test_reads_under_way_end_when_trouble_begins(
    line: Line, ask: Ask[Any], autojump_clock: MockClock, trouble: str
) -> None:
    async def read_two() -> list[int | None]:
        return [
            await line.read_product(COOKIE, Reading()),
            await line.read_product(COOKIE, Reading()),
        ]

    asked = ask(read_two)
    await trio.sleep(0.5)
    if trouble == "pause":
        line.pause(HumanCheck(), COOKIE)
    else:
        line.leave_products_alone(900, COOKIE)
    await asked.over.wait()
    assert asked.answer == [None, None]
    assert asked.at == 0.5


async def test_a_line_that_reads_a_product_is_at_work(
    line: Line, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    ask(read(line, Reading()))
    busy = [line.busy]
    for _ in range(2):
        await trio.sleep(0.8)
        busy.append(line.busy)
    assert busy == [False, True, False]


async def test_the_same_cookie_again_does_not_wake_the_products(line: Line) -> None:
    line.leave_products_alone(900, COOKIE)
    left_alone = []
    for cookie in (COOKIE, RENEWED):
        line.account.cookie_synced(cookie, None)
        left_alone.append(line.account.leaves_products_alone(cookie))
    assert left_alone == [True, False]


async def test_the_owner_wakes_the_products(line: Line) -> None:
    line.leave_products_alone(900, COOKIE)
    assert line.account.clear() is False  # they are no trouble of the account's
    assert not line.account.leaves_products_alone(COOKIE)


async def test_that_products_are_left_alone_for_longer_ends_that_of_no_other_cookie(
    line: Line,
) -> None:
    cookies = [parse_cookie(f"{COOKIE.header()}; n={n}") for n in range(MOST_COOKIES)]
    for cookie in [*cookies, cookies[-1]]:
        line.leave_products_alone(60, cookie)
    assert all(line.account.leaves_products_alone(cookie) for cookie in cookies)


async def test_what_is_wrong_with_one_cookie_is_not_laid_on_another(
    line: Line, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    asked = ask(lambda: line.read_product(RENEWED, Reading()))
    await trio.sleep(0.5)
    line.leave_products_alone(900, COOKIE)
    await asked.over.wait()
    assert (asked.answer, asked.at) == (1, 1)
    assert await line.read_product(RENEWED, Reading()) == 1
    assert await line.read_product(COOKIE, Reading()) is None


async def test_a_cookie_that_was_held_back_for_anothers_check_ends_the_pause(
    links: FakeLinks, line: Line, take: Take, autojump_clock: MockClock
) -> None:
    links.opening = 1.0
    held = take(1, RENEWED)
    await trio.sleep(0.5)
    line.pause(check := HumanCheck(), COOKIE)
    await held.over.wait()
    assert held.refusal is check
    assert links.submitted == []
    line.account.cookie_synced(RENEWED, COOKIE)
    assert line.account.state.standing is Standing.ACTIVE
