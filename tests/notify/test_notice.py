"""What is told and when: once for each change, not too often, and in the end the truth."""

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


def test_a_change_is_told_at_once() -> None:
    throttle = NoticeThrottle()
    assert throttle.due_at() == inf
    assert throttle.pop(0) is None
    throttle.add(PAUSED)
    assert throttle.due_at() == -inf
    assert throttle.pop(0) == PAUSED
    assert throttle.due_at() == inf
    assert throttle.pop(inf) is None


def test_the_next_change_of_the_same_subject_waits_its_time() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    throttle.pop(100)
    throttle.add(BACK)
    assert throttle.due_at() == 100 + MIN_INTERVAL
    assert throttle.pop(99.9 + MIN_INTERVAL) is None
    assert throttle.pop(100 + MIN_INTERVAL) == BACK


def test_other_subjects_do_not_wait_for_it() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    throttle.pop(100)
    throttle.add(DOWN)
    assert throttle.pop(100) == DOWN


def test_what_came_and_went_is_not_told() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    throttle.add(BACK)
    assert throttle.due_at() == inf  # nobody knows of it, so nobody need know that it is over
    throttle.add(PAUSED)
    throttle.pop(100)
    throttle.add(BACK)
    throttle.add(replace(PAUSED, text="again"))
    assert throttle.due_at() == inf


def test_the_last_of_several_changes_is_the_one_that_is_told() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    throttle.pop(100)
    throttle.add(BACK)
    throttle.add(LOST)
    assert throttle.pop(100 + MIN_INTERVAL) == LOST


def test_being_well_from_the_beginning_is_nothing_to_tell() -> None:
    throttle = NoticeThrottle()
    throttle.add(BACK)
    assert throttle.due_at() == inf


def _all(notice: Notice) -> list[Notice]:
    """The same of as many accounts as there is room for."""
    names = [f"1{number}" for number in range(MAX_ACCOUNTS)]
    return [replace(notice, subject=f"account {name}", account=name) for name in names]


def test_accounts_are_bounded_and_those_without_trouble_go_first() -> None:
    throttle = NoticeThrottle()
    assert all(throttle.add(each) for each in _all(PAUSED))
    assert not throttle.add(PAUSED)
    while throttle.pop(0):
        pass
    assert not throttle.add(PAUSED)  # all are known to be in trouble, which is not to be forgotten
    back = _all(BACK)[5]
    assert throttle.add(back)
    assert throttle.pop(MIN_INTERVAL) == back
    assert throttle.add(PAUSED)
    assert len(throttle._subjects) == MAX_ACCOUNTS


def test_lost_sessions_that_were_told_make_room_for_what_is_new() -> None:
    """The account of a cookie that has expired may never come back."""
    throttle = NoticeThrottle()
    for number, each in enumerate(_all(LOST)):
        assert throttle.add(each)
        assert throttle.pop(number) == each
    assert throttle.add(PAUSED)
    assert throttle.pop(1000) == PAUSED
    assert "account 10" not in throttle._subjects  # the one told the longest ago
    assert "account 11" in throttle._subjects


def test_the_browser_and_the_disk_have_a_place_whatever_accounts_do() -> None:
    throttle = NoticeThrottle()
    assert all(throttle.add(each) for each in _all(PAUSED))
    assert throttle.add(DOWN)
    assert len(throttle._subjects) == MAX_ACCOUNTS + 1


STATES = {"paused": PAUSED, "session lost": LOST, "active": BACK}


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_last_word_is_true_and_no_two_come_close(seed: int) -> None:
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


def test_the_fields_are_text_on_one_line_and_bounded() -> None:
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


def test_each_notice_has_an_id_of_its_own() -> None:
    first, second = (
        Notice("browser", "down", LogEvent.BROWSER_DOWN, NOON, "no Chromium") for _ in range(2)
    )
    assert first.id != second.id


def test_each_occurrence_is_told_however_soon_it_follows() -> None:
    throttle = NoticeThrottle()
    throttle.add(PAUSED)
    made = [replace(MADE, text=f"key {number}") for number in range(3)]
    for notice in made:
        assert throttle.add(notice) is True
    assert throttle.due_at() == -inf
    assert [throttle.pop(0) for _ in range(5)] == [*made, PAUSED, None]
    assert throttle.due_at() == inf


def test_occurrences_that_wait_are_bounded() -> None:
    throttle = NoticeThrottle()
    noted = [throttle.add(MADE) for _ in range(MAX_OCCURRENCES + 1)]
    assert noted == [*[True] * MAX_OCCURRENCES, False]
    assert throttle.pop(0) == MADE
    assert throttle.add(MADE) is True
