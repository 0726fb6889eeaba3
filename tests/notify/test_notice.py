"""What is told and when: once for each change, not too often, and in the end the truth."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from math import inf

import pytest

from smartlinkd.conversion.account import MOST_ACCOUNTS
from smartlinkd.logs import LogEvent
from smartlinkd.notify.notice import (
    DISTANCE,
    LONGEST_TEXT,
    MOST_OCCURRENCES,
    Board,
    DaemonIdentity,
    Notice,
    body_of,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PAUSED = Notice("account 7", "paused", LogEvent.ACCOUNT_PAUSED, NOON, "7 is paused", account="7")
LOST = replace(PAUSED, state="session lost", event=LogEvent.SESSION_LOST, text="7 wants a login")
BACK = replace(PAUSED, state="active", event=LogEvent.ACCOUNT_BACK, text="7 is back", fine=True)
MADE = Notice("API keys", "made", LogEvent.KEY_MADE, NOON, "a key was made", is_occurrence=True)
DOWN = Notice("browser", "down", LogEvent.BROWSER_DOWN, NOON, "no Chromium")


def test_a_change_is_told_at_once() -> None:
    board = Board()
    assert board.due_at() == inf
    assert board.take(0) is None
    board.note(PAUSED)
    assert board.due_at() == -inf
    assert board.take(0) == PAUSED
    assert board.due_at() == inf
    assert board.take(inf) is None


def test_the_next_change_of_the_same_subject_waits_its_time() -> None:
    board = Board()
    board.note(PAUSED)
    board.take(100)
    board.note(BACK)
    assert board.due_at() == 100 + DISTANCE
    assert board.take(99.9 + DISTANCE) is None
    assert board.take(100 + DISTANCE) == BACK


def test_other_subjects_do_not_wait_for_it() -> None:
    board = Board()
    board.note(PAUSED)
    board.take(100)
    board.note(DOWN)
    assert board.take(100) == DOWN


def test_what_came_and_went_is_not_told() -> None:
    board = Board()
    board.note(PAUSED)
    board.note(BACK)
    assert board.due_at() == inf  # nobody knows of it, so nobody need know that it is over
    board.note(PAUSED)
    board.take(100)
    board.note(BACK)
    board.note(replace(PAUSED, text="again"))
    assert board.due_at() == inf


def test_the_last_of_several_changes_is_the_one_that_is_told() -> None:
    board = Board()
    board.note(PAUSED)
    board.take(100)
    board.note(BACK)
    board.note(LOST)
    assert board.take(100 + DISTANCE) == LOST


def test_being_well_from_the_beginning_is_nothing_to_tell() -> None:
    board = Board()
    board.note(BACK)
    assert board.due_at() == inf


def _all(notice: Notice) -> list[Notice]:
    """The same of as many accounts as there is room for."""
    names = [f"1{number}" for number in range(MOST_ACCOUNTS)]
    return [replace(notice, subject=f"account {name}", account=name) for name in names]


def test_accounts_are_bounded_and_those_without_trouble_go_first() -> None:
    board = Board()
    assert all(board.note(each) for each in _all(PAUSED))
    assert not board.note(PAUSED)
    while board.take(0):
        pass
    assert not board.note(PAUSED)  # all are known to be in trouble, which is not to be forgotten
    back = _all(BACK)[5]
    assert board.note(back)
    assert board.take(DISTANCE) == back
    assert board.note(PAUSED)
    assert len(board._subjects) == MOST_ACCOUNTS


def test_lost_sessions_that_were_told_make_room_for_what_is_new() -> None:
    """The account of a cookie that has expired may never come back."""
    board = Board()
    for number, each in enumerate(_all(LOST)):
        assert board.note(each)
        assert board.take(number) == each
    assert board.note(PAUSED)
    assert board.take(1000) == PAUSED
    assert "account 10" not in board._subjects  # the one told the longest ago
    assert "account 11" in board._subjects


def test_the_browser_and_the_disk_have_a_place_whatever_accounts_do() -> None:
    board = Board()
    assert all(board.note(each) for each in _all(PAUSED))
    assert board.note(DOWN)
    assert len(board._subjects) == MOST_ACCOUNTS + 1


STATES = {"paused": PAUSED, "session lost": LOST, "active": BACK}


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_the_last_word_is_true_and_no_two_come_close(seed: int) -> None:
    chance = random.Random(seed)
    board, now, state = Board(), 0, "active"
    told: list[tuple[int, str]] = []
    for change in range(60):
        changed = state if change > 50 else chance.choice(sorted(STATES))
        if changed != state:
            state = changed
            board.note(STATES[changed])
        for _ in range(chance.choice([0, 1, 5, 20, 45])):
            while notice := board.take(now):
                told.append((now, notice.state))
            now += 1
    assert len(told) > 5
    assert told[-1][1] == state
    assert told[0][1] != "active"
    for (before, one), (after, other) in pairwise(told):
        assert after - before >= DISTANCE
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
        "text": ("a b [2J" + "x" * 2000)[:LONGEST_TEXT],
        "host": "here",
        "state_directory": "/var/lib/smartlinkd",
    }


def test_each_notice_has_an_id_of_its_own() -> None:
    first, second = (
        Notice("browser", "down", LogEvent.BROWSER_DOWN, NOON, "no Chromium") for _ in range(2)
    )
    assert first.id != second.id


def test_each_occurrence_is_told_however_soon_it_follows() -> None:
    board = Board()
    board.note(PAUSED)
    made = [replace(MADE, text=f"key {number}") for number in range(3)]
    for notice in made:
        assert board.note(notice) is True
    assert board.due_at() == -inf
    assert [board.take(0) for _ in range(5)] == [*made, PAUSED, None]
    assert board.due_at() == inf


def test_occurrences_that_wait_are_bounded() -> None:
    board = Board()
    noted = [board.note(MADE) for _ in range(MOST_OCCURRENCES + 1)]
    assert noted == [*[True] * MOST_OCCURRENCES, False]
    assert board.take(0) == MADE
    assert board.note(MADE) is True
