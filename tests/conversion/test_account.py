"""An account's status, and that each change of it is reported once."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from smartlinkd.conversion.account import Account, AccountState, AccountStatus
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.errors import SessionLost
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


def statuses(told: Told) -> list[AccountStatus]:
    return [state.status for _, state in told]


def test_each_change_is_told_once_with_the_name_that_may_be_shown(
    account: Account, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    account.note_links_made(COOKIE)
    account.note_synced_cookie(COOKIE, None)
    account.note_session_lost(SessionLost(), COOKIE)
    account.note_session_lost(SessionLost(), COOKIE)
    account.pause(COOKIE)
    account.pause(COOKIE)
    account.clear()
    account.clear()
    assert statuses(told) == [
        AccountStatus.SESSION_LOST,
        AccountStatus.PAUSED,
        AccountStatus.ACTIVE,
    ]
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
    account.pause(COOKIE)
    caplog.clear()
    account.note_synced_cookie(parse_cookie(COOKIE.header()), None)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"account {SHOWN} stays paused" in record.message
    assert NAME not in record.message
    assert COOKIE.digest not in record.message
    assert "first" not in record.message
    assert statuses(told) == [AccountStatus.PAUSED]


def test_a_cookie_that_is_only_out_of_session_is_no_pause(
    account: Account, caplog: pytest.LogCaptureFixture
) -> None:
    account.note_session_lost(SessionLost(), COOKIE)
    caplog.clear()
    account.note_synced_cookie(COOKIE, None)
    assert not caplog.records


@pytest.mark.parametrize("status", AccountStatus)
def test_each_status_has_an_event_of_its_own(status: AccountStatus) -> None:
    """Which the log and the notices go by."""
    events = [AccountState(each, datetime.now(UTC), None).event for each in AccountStatus]
    assert events.count(AccountState(status, datetime.now(UTC), None).event) == 1


def test_a_session_that_works_again_is_told(account: Account, told: Told) -> None:
    account.note_session_lost(SessionLost(), COOKIE)
    account.note_links_made(COOKIE)
    assert statuses(told) == [AccountStatus.SESSION_LOST, AccountStatus.ACTIVE]
    account.note_session_lost(SessionLost(), COOKIE)
    assert statuses(told)[2:] == [AccountStatus.SESSION_LOST]


def test_lost_session_of_a_requests_own_cookie_is_not_the_accounts(
    account: Account, told: Told
) -> None:
    """As when a client sends an old cookie with each of its requests."""
    account.note_synced_cookie(OTHER, None)
    account.note_session_lost(SessionLost(), COOKIE)
    assert statuses(told) == []
    account.note_session_lost(SessionLost(), OTHER)
    account.note_links_made(COOKIE)
    assert statuses(told) == [AccountStatus.SESSION_LOST]


def test_lost_session_of_a_superseded_cookie_is_not_the_accounts(
    account: Account, told: Told
) -> None:
    account.note_synced_cookie(COOKIE, None)
    account.note_synced_cookie(OTHER, COOKIE)
    account.note_session_lost(SessionLost(), COOKIE)  # by a submit that was under way
    assert statuses(told) == []
    account.note_session_lost(SessionLost(), OTHER)
    assert statuses(told) == [AccountStatus.SESSION_LOST]


def test_session_lost_by_a_cookie_that_was_stored_again_is_the_accounts(
    account: Account, told: Told
) -> None:
    account.note_synced_cookie(COOKIE, None)
    account.note_synced_cookie(OTHER, COOKIE)
    account.note_synced_cookie(COOKIE, OTHER)
    account.note_session_lost(SessionLost(), COOKIE)
    assert statuses(told) == [AccountStatus.SESSION_LOST]


def test_neither_of_two_lost_cookies_is_a_new_one(account: Account) -> None:
    account.note_session_lost(SessionLost(), COOKIE)
    account.note_session_lost(SessionLost(), OTHER)
    account.note_synced_cookie(COOKIE, OTHER)
    assert account.state.status is AccountStatus.SESSION_LOST


def test_lost_cookie_that_is_synced_again_does_not_activate_the_account(
    account: Account, told: Told
) -> None:
    """An extension sends it every few minutes."""
    account.note_session_lost(SessionLost(), COOKIE)
    account.note_synced_cookie(COOKIE, COOKIE)
    account.note_synced_cookie(COOKIE, COOKIE)
    assert account.state.status is AccountStatus.SESSION_LOST
    assert statuses(told) == [AccountStatus.SESSION_LOST]


def test_lost_session_is_reported_again_after_the_owner_cleared_it(
    account: Account, told: Told
) -> None:
    account.note_session_lost(SessionLost(), COOKIE)
    account.clear()
    told.clear()
    account.note_session_lost(SessionLost(), COOKIE)
    assert statuses(told) == [AccountStatus.SESSION_LOST]


def test_cookie_that_ended_a_pause_can_lose_its_session(account: Account, told: Told) -> None:
    account.note_session_lost(SessionLost(), COOKIE)
    account.pause(OTHER)
    account.note_synced_cookie(COOKIE, None)
    account.note_session_lost(SessionLost(), COOKIE)
    assert statuses(told)[-1] is AccountStatus.SESSION_LOST
