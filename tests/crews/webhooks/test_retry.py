"""What an answer means, and when it is tried again."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from smartlinkd.crews.webhooks.retry import (
    BACKOFF,
    MAX_ATTEMPTS,
    Delivered,
    GivenUp,
    Later,
    Verdict,
    judge,
)
from smartlinkd.net.outcomes import Answered, Unanswered

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HOUR = 3600


class NoChance(random.Random):
    """The longest waits."""

    def random(self) -> float:
        return 0.0


def judged(outcome: Answered | Unanswered, attempt: int = 1, most: int = MAX_ATTEMPTS) -> Verdict:
    return judge(outcome, attempt, most=most, now=NOW, chance=NoChance())


def wait(outcome: Answered | Unanswered, attempt: int = 1) -> float:
    verdict = judged(outcome, attempt)
    assert isinstance(verdict, Later)
    return verdict.wait


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_delivered(status: int) -> None:
    assert judged(Answered(status)) == Delivered()


@pytest.mark.parametrize("status", [302, 303, 307, 408, 425, 429, 500, 502, 503, 504, 599])
def test_tried_again(status: int) -> None:
    assert judged(Answered(status)) == Later(f"HTTP {status} (attempt 1)", 5.0)


@pytest.mark.parametrize("status", [300, 301, 304, 308, 400, 401, 403, 404, 405, 410, 413, 422])
def test_given_up(status: int) -> None:
    assert judged(Answered(status)) == GivenUp(f"HTTP {status} (attempt 1)", worn_out=False)


@pytest.mark.parametrize("status", [101, 600, 999])
def test_an_answer_that_is_none_is_given_up(status: int) -> None:
    assert isinstance(judged(Answered(status)), GivenUp)


def test_silence_is_tried_again_unless_it_is_our_own_fault() -> None:
    assert judged(Unanswered("why"), 2) == Later("why (attempt 2)", 10.0)
    assert judged(Unanswered("why", is_final=True)) == GivenUp("why (attempt 1)", worn_out=False)


def test_the_waits_double_up_to_an_hour() -> None:
    waits = [wait(Unanswered(""), attempt) for attempt in range(1, MAX_ATTEMPTS)]
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[10:] == [HOUR] * 24
    assert 24 * HOUR <= sum(waits) <= 26 * HOUR


def test_waits_differ_by_chance() -> None:
    chance = random.Random(1)
    verdicts = [judge(Unanswered(""), 1, now=NOW, chance=chance) for _ in range(20)]
    waits = {verdict.wait for verdict in verdicts if isinstance(verdict, Later)}
    assert len(waits) > 10
    assert min(waits) >= BACKOFF.first * (1 - BACKOFF.jitter)


def test_the_last_attempt_is_the_last() -> None:
    assert judged(Answered(503), MAX_ATTEMPTS - 1) != judged(Answered(503), MAX_ATTEMPTS)
    assert judged(Answered(503), MAX_ATTEMPTS) == GivenUp("HTTP 503 (attempt 35)", worn_out=True)
    assert judged(Unanswered("x"), 1, most=1) == GivenUp("x (attempt 1)", worn_out=True)
    assert judged(Answered(200), MAX_ATTEMPTS) == Delivered()


@pytest.mark.parametrize("outcome", [Answered(404), Unanswered("HTTP 404", is_final=True)])
def test_a_refusal_of_its_last_attempt_wears_nothing_out(outcome: Answered | Unanswered) -> None:
    """Somebody is there, and may well take the next call."""
    verdict = judged(outcome, MAX_ATTEMPTS)
    assert verdict == GivenUp(f"HTTP 404 (attempt {MAX_ATTEMPTS})", worn_out=False)


@pytest.mark.parametrize(("attempt", "worn_out"), [(1, False), (MAX_ATTEMPTS, True)])
def test_the_last_of_one_that_is_too_old_wears_out_nothing_by_itself(
    attempt: int, worn_out: bool
) -> None:
    verdict = judge(Unanswered("x"), attempt, too_old=True, now=NOW, chance=NoChance())
    assert verdict == GivenUp(f"x (attempt {attempt})", worn_out=worn_out)


@pytest.mark.parametrize(
    ("asked", "waits"),
    [
        ("120", 120),
        (" 120 ", 120),
        ("1", 5),  # our own is longer
        ("-5", 5),
        ("999999999", HOUR),
        ("1000000000", HOUR),
        ("9" * 5000, HOUR),
        ("²", 5),
        ("1.5", 5),
        ("soon", 5),
        ("", 5),
        ("Mon, 04 May 2026 03:04:01 GMT", 120),
        ("Mon, 04 May 2026 03:00:00 GMT", 5),
        ("Sun, 04 May 2036 03:00:00 GMT", HOUR),
        ("Mon, 99 May 2026 03:00:00 GMT", 5),
        ("Mon, 04 May 2026 03:04:01 -0000", 5),  # no time zone
        ("Mon, 04 May 2026 03:04:01 +" + "9" * 20, 5),
        ("Mon, 04 May " + "9" * 20 + " 03:04:01 GMT", 5),
    ],
)
def test_a_receiver_may_ask_for_a_longer_wait(asked: str, waits: float) -> None:
    assert wait(Answered(503, asked)) == waits


def test_a_date_in_another_time_zone() -> None:
    assert wait(Answered(429, "Mon, 04 May 2026 05:04:01 +0200")) == 120
