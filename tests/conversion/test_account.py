"""How an account stands, and that each change of it is told once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from smartlinkd.conversion.account import MANY_IN_VAIN, Account, AccountState, Standing
from smartlinkd.conversion.pause_store import MOST_COOKIES
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import parse_cookie

COOKIE = parse_cookie("SPC_U=100100100100100; SPC_EC=first")
OTHER = parse_cookie("SPC_U=100100100100100; SPC_EC=second")
NAME = COOKIE.account
SHOWN = NAME[:12]

Told = list[tuple[str, AccountState]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def account(told: Told) -> Account:
    return Account(NAME, lambda account: told.append((account.shown, account.state)))


def standings(told: Told) -> list[Standing]:
    return [state.standing for _, state in told]


def test_each_change_is_told_once_with_the_name_that_may_be_shown(
    account: Account, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    account.made_links(COOKIE)
    account.cookie_synced(COOKIE, None)
    account.lost_session(SessionLost(), COOKIE)
    account.lost_session(SessionLost(), COOKIE)
    account.pause(HumanCheck(), COOKIE)
    account.pause(HumanCheck(), COOKIE)
    account.clear()
    account.clear()
    assert standings(told) == [Standing.SESSION_LOST, Standing.PAUSED, Standing.ACTIVE]
    assert {name for name, _ in told} == {SHOWN}
    assert told[-1][1] == account.state
    logged = [record for record in caplog.records if hasattr(record, "event")]
    assert [(record.event, record.about) for record in logged] == [  # type: ignore[attr-defined]
        (event, {"account": SHOWN})
        for event in (LogEvent.SESSION_LOST, LogEvent.ACCOUNT_PAUSED, LogEvent.ACCOUNT_BACK)
    ]


def test_a_cookie_that_ends_no_pause_is_told_in_the_log_without_its_values(
    account: Account, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    account.pause(HumanCheck(), COOKIE)
    caplog.clear()
    account.cookie_synced(parse_cookie(COOKIE.header()), None)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"account {SHOWN} stays paused" in record.message
    assert NAME not in record.message
    assert COOKIE.digest not in record.message
    assert "first" not in record.message
    assert standings(told) == [Standing.PAUSED]


def test_a_cookie_that_is_only_out_of_session_is_no_pause(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.lost_session(SessionLost(), COOKIE)
    caplog.clear()
    account.cookie_synced(COOKIE, None)
    assert not caplog.records


@pytest.mark.parametrize("standing", Standing)
def test_each_standing_has_an_event_of_its_own(standing: Standing) -> None:
    """Which the log and the notices go by."""
    events = [AccountState(each, datetime.now(UTC), None).event for each in Standing]
    assert events.count(AccountState(standing, datetime.now(UTC), None).event) == 1


def test_a_session_that_works_again_is_told(account: Account, told: Told) -> None:
    account.lost_session(SessionLost(), COOKIE)
    account.made_links(COOKIE)
    assert standings(told) == [Standing.SESSION_LOST, Standing.ACTIVE]
    account.lost_session(SessionLost(), COOKIE)
    assert standings(told)[2:] == [Standing.SESSION_LOST]


def test_a_lost_session_beside_one_that_works_is_told_once(account: Account, told: Told) -> None:
    """As when a client sends an old cookie with each of its requests."""
    for _ in range(3):
        account.lost_session(SessionLost(), COOKIE)
        account.made_links(OTHER)
    assert standings(told) == [Standing.SESSION_LOST, Standing.ACTIVE]
    account.cookie_synced(COOKIE, OTHER)
    account.lost_session(SessionLost(), COOKIE)
    assert standings(told)[2:] == [Standing.SESSION_LOST]


def test_one_that_is_lost_again_and_again_pushes_no_other_out(account: Account, told: Told) -> None:
    """Which would be news then."""
    third = parse_cookie("SPC_U=100100100100100; SPC_EC=third")
    account.lost_session(SessionLost(), OTHER)
    account.made_links(third)
    for _ in range(MOST_COOKIES):
        account.lost_session(SessionLost(), COOKIE)
        account.made_links(third)
    told.clear()
    account.lost_session(SessionLost(), OTHER)
    assert standings(told) == []


def test_that_the_cookie_before_is_lost_is_no_news_once_there_is_another(
    account: Account, told: Told
) -> None:
    account.cookie_synced(COOKIE, None)
    account.cookie_synced(OTHER, COOKIE)
    account.lost_session(SessionLost(), COOKIE)  # by a submit that was under way
    assert standings(told) == []
    account.lost_session(SessionLost(), OTHER)
    assert standings(told) == [Standing.SESSION_LOST]


def test_one_that_was_replaced_and_came_back_is_news_when_it_is_lost(
    account: Account, told: Told
) -> None:
    account.cookie_synced(COOKIE, None)
    account.cookie_synced(OTHER, COOKIE)
    account.cookie_synced(COOKIE, OTHER)
    account.lost_session(SessionLost(), COOKIE)
    assert standings(told) == [Standing.SESSION_LOST]


def test_neither_of_two_lost_cookies_is_a_new_one(account: Account) -> None:
    account.lost_session(SessionLost(), COOKIE)
    account.lost_session(SessionLost(), OTHER)
    account.cookie_synced(COOKIE, OTHER)
    assert account.state.standing is Standing.SESSION_LOST


def test_a_lost_cookie_that_is_synced_twice_is_none_that_works(
    account: Account, told: Told
) -> None:
    """An extension sends it every few minutes."""
    account.lost_session(SessionLost(), COOKIE)
    account.cookie_synced(COOKIE, COOKIE)
    account.cookie_synced(COOKIE, COOKIE)
    assert account.state.standing is Standing.SESSION_LOST
    assert standings(told) == [Standing.SESSION_LOST]


def test_when_no_cookie_works_any_more_that_is_told(account: Account, told: Told) -> None:
    """Though another one has worked since this one was lost."""
    account.lost_session(SessionLost(), COOKIE)
    account.made_links(OTHER)
    for _ in range(MANY_IN_VAIN):
        account.lost_session(SessionLost(), COOKIE)
    lost, back = Standing.SESSION_LOST, Standing.ACTIVE
    assert standings(told) == [lost, back, lost]


@pytest.mark.parametrize("replaced", [False, True])
def test_what_the_owner_has_cleared_is_news_when_it_is_lost_again(
    account: Account, told: Told, *, replaced: bool
) -> None:
    """Be it of a cookie that was lost before, or of one that was replaced."""
    if replaced:
        account.cookie_synced(OTHER, COOKIE)
    else:
        account.lost_session(SessionLost(), COOKIE)
        account.made_links(OTHER)
    account.clear()
    told.clear()
    account.lost_session(SessionLost(), COOKIE)
    assert standings(told) == [Standing.SESSION_LOST]


def test_a_cookie_that_ended_a_pause_is_told_of_when_it_is_lost(
    account: Account, told: Told
) -> None:
    account.lost_session(SessionLost(), COOKIE)
    account.pause(HumanCheck(), OTHER)
    account.cookie_synced(COOKIE, None)
    account.lost_session(SessionLost(), COOKIE)
    assert standings(told)[-1] is Standing.SESSION_LOST


def test_however_often_the_one_before_was_in_vain_it_is_no_news(
    account: Account, told: Told
) -> None:
    for _ in range(MANY_IN_VAIN):
        account.lost_session(SessionLost(), COOKIE)
    account.cookie_synced(OTHER, COOKIE)
    account.lost_session(SessionLost(), COOKIE)  # by a submit that was still under way
    assert standings(told) == [Standing.SESSION_LOST, Standing.ACTIVE]


def test_however_often_an_old_one_is_in_vain_it_is_no_news_while_another_works(
    account: Account, told: Told
) -> None:
    account.cookie_synced(OTHER, COOKIE)
    for _ in range(MANY_IN_VAIN + 1):
        account.lost_session(SessionLost(), COOKIE)
        account.made_links(OTHER)
    assert standings(told) == []


def test_nor_is_one_news_that_was_replaced_a_while_ago(account: Account, told: Told) -> None:
    third = parse_cookie("SPC_U=100100100100100; SPC_EC=third")
    stranger = parse_cookie("SPC_U=1; SPC_EC=first")
    account.cookie_synced(COOKIE, None)
    account.cookie_synced(OTHER, COOKIE)
    account.cookie_synced(third, OTHER)
    account.cookie_synced(third, stranger)
    account.lost_session(SessionLost(), COOKIE)
    assert standings(told) == []
