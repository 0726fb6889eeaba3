"""When Chromium counts as one that cannot be kept up: said once, and once that it is over."""

from __future__ import annotations

import pytest

from smartlinkd.browser.actor import DownAlarm
from smartlinkd.logs import LogEvent
from tests.browser.jobs import LIMITS


@pytest.fixture
def told() -> list[str | None]:
    return []


@pytest.fixture
def alarm(told: list[str | None]) -> DownAlarm:
    return DownAlarm(told.append, threshold=LIMITS.failures_before_alarm)


def events(caplog: pytest.LogCaptureFixture) -> list[LogEvent]:
    return [record.event for record in caplog.records if hasattr(record, "event")]


def test_few_failures_are_not_reported(
    alarm: DownAlarm, told: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1, LIMITS.failures_before_alarm):
        alarm.record_failure("crashed", another_serves=False)
        assert alarm.failures == number
    assert (told, events(caplog)) == ([], [])


def test_too_many_failures_in_a_row_are_reported_once(
    alarm: DownAlarm, told: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * LIMITS.failures_before_alarm):
        alarm.record_failure(f"crash {number}", another_serves=False)
    assert told == [f"crash {LIMITS.failures_before_alarm - 1}"]
    assert events(caplog) == [LogEvent.BROWSER_DOWN]
    assert f"{LIMITS.failures_before_alarm} times in a row" in caplog.text


def test_healthy_time_resets_the_count(alarm: DownAlarm, told: list[str | None]) -> None:
    for _ in range(LIMITS.failures_before_alarm - 1):
        alarm.record_failure("crashed", another_serves=False)
    alarm.record_healthy()
    assert alarm.failures == 0
    for _ in range(LIMITS.failures_before_alarm - 1):
        alarm.record_failure("crashed", another_serves=False)
    assert told == []


def test_recovery_is_reported_once_and_counting_begins_again(
    alarm: DownAlarm, told: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(LIMITS.failures_before_alarm):
        alarm.record_failure("first", another_serves=False)
    alarm.record_healthy()
    alarm.record_healthy()
    for _ in range(LIMITS.failures_before_alarm):
        alarm.record_failure("second", another_serves=False)
    assert told == ["first", None, "second"]
    assert events(caplog) == [LogEvent.BROWSER_DOWN, LogEvent.BROWSER_BACK, LogEvent.BROWSER_DOWN]


def test_failures_are_not_reported_while_another_browser_serves(
    alarm: DownAlarm, told: list[str | None]
) -> None:
    for _ in range(2 * LIMITS.failures_before_alarm):
        alarm.record_failure("launch failed", another_serves=True)
    assert told == []
    alarm.record_failure("and it ended", another_serves=False)
    assert told == ["and it ended"]
