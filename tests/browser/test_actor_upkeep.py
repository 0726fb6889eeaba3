"""When Chromium counts as one that cannot be kept up: said once, and once that it is over."""

from __future__ import annotations

import pytest

from smartlinkd.browser.actor import TOO_MANY, Upkeep
from smartlinkd.logs import LogEvent


@pytest.fixture
def told() -> list[str | None]:
    return []


@pytest.fixture
def upkeep(told: list[str | None]) -> Upkeep:
    return Upkeep(told.append)


def events(caplog: pytest.LogCaptureFixture) -> list[LogEvent]:
    return [record.event for record in caplog.records if hasattr(record, "event")]


def test_a_few_ends_are_an_everyday_event(
    upkeep: Upkeep, told: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, TOO_MANY):
        upkeep.failed("crashed", another_serves=False)
        assert upkeep.failures == number
    assert (told, events(caplog)) == ([], [])


def test_too_many_in_a_row_are_told_once(
    upkeep: Upkeep, told: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * TOO_MANY):
        upkeep.failed(f"crash {number}", another_serves=False)
    assert told == [f"crash {TOO_MANY - 1}"]
    assert events(caplog) == [LogEvent.BROWSER_DOWN]
    assert f"{TOO_MANY} times in a row" in caplog.text


def test_a_healthy_time_begins_the_count_anew(upkeep: Upkeep, told: list[str | None]) -> None:
    for _ in range(TOO_MANY - 1):
        upkeep.failed("crashed", another_serves=False)
    upkeep.steady()
    assert upkeep.failures == 0
    for _ in range(TOO_MANY - 1):
        upkeep.failed("crashed", another_serves=False)
    assert told == []


def test_its_end_is_told_once_and_then_all_begins_again(
    upkeep: Upkeep, told: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(TOO_MANY):
        upkeep.failed("first", another_serves=False)
    upkeep.steady()
    upkeep.steady()
    for _ in range(TOO_MANY):
        upkeep.failed("second", another_serves=False)
    assert told == ["first", None, "second"]
    assert events(caplog) == [LogEvent.BROWSER_DOWN, LogEvent.BROWSER_BACK, LogEvent.BROWSER_DOWN]


def test_nobody_is_told_while_another_one_serves(upkeep: Upkeep, told: list[str | None]) -> None:
    for _ in range(2 * TOO_MANY):
        upkeep.failed("launch failed", another_serves=True)
    assert told == []
    upkeep.failed("and it ended", another_serves=False)
    assert told == ["and it ended"]
