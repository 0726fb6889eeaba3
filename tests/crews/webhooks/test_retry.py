"""The verdict on an answer, and the wait before a repetition."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from smartlinkd.crews.webhooks.retry import Verdict, judge
from smartlinkd.net.egress import Answered, Unanswered

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HOUR = 3600


class NoChance(random.Random):
    """The longest waits."""

    def random(self) -> float:
        return 0.0


def judged(outcome: Answered | Unanswered, attempt: int = 1, *, is_last: bool = False) -> Verdict:
    return judge(outcome, attempt, is_last=is_last, now=NOW, chance=NoChance())


def wait(outcome: Answered | Unanswered, attempt: int = 1) -> float:
    verdict = judged(outcome, attempt)
    assert verdict.outcome == "later"
    return verdict.wait


@pytest.mark.parametrize(
    ("verdict", "statuses"),
    [
        ("done", [200, 201, 202, 204, 299]),
        ("later", [302, 303, 307, 408, 425, 429, 500, 502, 503, 504, 599]),
        ("given up", [300, 301, 304, 308, 400, 401, 403, 404, 405, 410, 413, 422]),
    ],
)
def test_status_decides_what_comes_of_the_call(verdict: str, statuses: list[int]) -> None:
    assert {judged(Answered(status)).outcome for status in statuses} == {verdict}


def test_unanswered_call_is_retried_unless_final() -> None:
    assert judged(Unanswered("why"), 2) == Verdict("later", "why (attempt 2)", 10.0)
    assert judged(Unanswered("why", is_final=True)) == Verdict("given up", "why (attempt 1)")


def test_waits_double_up_to_an_hour() -> None:
    waits = [wait(Unanswered(""), attempt) for attempt in range(1, 21)]
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[10:] == [HOUR] * 10


@pytest.mark.parametrize("outcome", [Answered(503), Unanswered("HTTP 503")])
def test_last_attempt_that_fails_gives_the_call_up(outcome: Answered | Unanswered) -> None:
    assert judged(outcome, 35, is_last=True) == Verdict("given up", "HTTP 503 (attempt 35)")


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
def test_retry_after_may_lengthen_the_wait(asked: str, waits: float) -> None:
    assert wait(Answered(503, asked)) == waits
