"""The notices that are due: one a change, not too often, and in the end the truth."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from math import inf

import pytest

from smartlinkd.conversion.account import MAX_ACCOUNTS
from smartlinkd.logs import LogEvent
from smartlinkd.notify.notice import (
    MAX_OCCURRENCES,
    MAX_TEXT,
    MIN_INTERVAL,
    DaemonIdentity,
    Notice,
    NoticeThrottle,
    body_of,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAUSED = Notice("account 7", "paused", LogEvent.ACCOUNT_PAUSED, NOON, "7 is paused", account="7")
LOST = replace(PAUSED, state="session lost", event=LogEvent.SESSION_LOST, text="7 wants a login")
BACK = replace(
    PAUSED, state="active", event=LogEvent.ACCOUNT_BACK, text="7 is back", is_resolved=True
)
MADE = Notice("API keys", "made", LogEvent.KEY_MADE, NOON, "a key was made", is_occurrence=True)
DOWN = Notice("browser", "down", LogEvent.BROWSER_DOWN, NOON, "no Chromium")


def test_change_is_due_at_once() -> None:
    throttle = NoticeThrottle()
    assert throttle.due_at() == inf
    assert throttle.pop(0) is None
    throttle.add(PAUSED)
    assert throttle.due_at() == -inf
    assert throttle.pop(0) == PAUSED
    assert throttle.due_at() == inf
    assert throttle.pop(inf) is None


def test_next_change_of_the_same_subject_waits_for_the_interval() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    throttle.pop(100)
    throttle.add(BACK)
    assert throttle.due_at() == 100 + MIN_INTERVAL
    assert throttle.pop(99.9 + MIN_INTERVAL) is None
    assert throttle.pop(100 + MIN_INTERVAL) == BACK


def test_change_that_was_undone_is_not_told() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    throttle.add(BACK)
    assert throttle.due_at() == inf  # nobody knows of it, so nobody need know that it is over
    throttle.add(PAUSED)
    throttle.pop(100)
    throttle.add(BACK)
    throttle.add(replace(PAUSED, text="again"))
    assert throttle.due_at() == inf


def _all(notice: Notice) -> list[Notice]:
    """The same of as many accounts as there is room for."""
    names = [f"1{number}" for number in range(MAX_ACCOUNTS)]
    return [replace(notice, subject=f"account {name}", account=name) for name in names]


def test_settled_account_is_forgotten_for_a_new_one() -> None:
    throttle = NoticeThrottle()
    for each in _all(PAUSED):
        assert throttle.add(each) is None
    first, second, *others = _all(PAUSED)
    throttle.add(replace(BACK, subject=second.subject, account=second.account))
    assert throttle.add(PAUSED) is None
    assert throttle.add(DOWN) is None  # the browser has a place beside the most accounts
    waiting = [first, *others, PAUSED, DOWN]
    assert [throttle.pop(0) for _ in waiting] == waiting


def test_account_that_was_reported_first_is_forgotten_for_a_new_one() -> None:
    """Its cookie may have expired for good."""
    throttle = NoticeThrottle()
    for each in _all(LOST):
        throttle.add(each)
    first, second, *_ = _all(LOST)
    assert throttle.pop(0) == first
    assert throttle.add(PAUSED) is None
    assert throttle.add(replace(PAUSED, subject="account 8", account="8")) == second


def test_paused_account_is_kept_while_a_lost_session_is_known() -> None:
    throttle = NoticeThrottle()
    paused, *others = _all(PAUSED)[:1] + _all(LOST)[1:]
    for each in (paused, *others):
        throttle.add(each)
        assert throttle.pop(0) == each
    new = replace(LOST, subject="account 8", account="8")
    back = replace(BACK, subject=paused.subject, account=paused.account)
    assert throttle.add(new) is None
    assert throttle.pop(0) == new
    throttle.add(back)
    assert throttle.pop(inf) == back


STATES = {"paused": PAUSED, "session lost": LOST, "active": BACK}


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_end_in_the_truth_and_keep_the_interval(seed: int) -> None:
    chance = random.Random(seed)
    throttle, now, state = NoticeThrottle(), 0, "active"
    told: list[tuple[int, str]] = []
    for change in range(60):
        changed = state if change > 50 else chance.choice(sorted(STATES))
        if changed != state:
            state = changed
            throttle.add(STATES[changed])
        for _ in range(chance.choice([0, 1, 5, 20, 45])):
            while notice := throttle.pop(now):
                told.append((now, notice.state))
            now += 1
    assert len(told) > 5
    assert told[-1][1] == state
    assert told[0][1] != "active"
    for (before, one), (after, other) in pairwise(told):
        assert after - before >= MIN_INTERVAL
        assert one != other


def test_fields_are_one_line_of_bounded_text() -> None:
    odd = replace(PAUSED, text="a\nb\x1b[2J" + "x" * 2000)
    body = body_of(odd, DaemonIdentity("here", "/var/lib/smartlinkd"))
    assert body == {
        "id": odd.id,
        "event": "account_paused",
        "account": "7",
        "state": "paused",
        "since": "2026-11-21T12:00:00.000Z",
        "text": ("a b [2J" + "x" * 2000)[:MAX_TEXT],
        "host": "here",
        "state_directory": "/var/lib/smartlinkd",
    }


def test_each_occurrence_is_told_at_once() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    made = [replace(MADE, text=f"key {number}") for number in range(3)]
    for notice in made:
        assert throttle.add(notice) is None
    assert throttle.due_at() == -inf
    assert [throttle.pop(0) for _ in range(5)] == [*made, PAUSED, None]
    assert throttle.due_at() == inf


def test_waiting_occurrences_are_bounded() -> None:
    throttle = NoticeThrottle()
    noted = [throttle.add(MADE) for _ in range(MAX_OCCURRENCES + 1)]
    assert noted == [*[None] * MAX_OCCURRENCES, MADE]
    assert throttle.pop(0) == MADE
    assert throttle.add(MADE) is None
