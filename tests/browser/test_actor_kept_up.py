"""The browser actor tells when Chromium cannot be kept up, and when it can be again."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.logs import LogEvent
from smartlinkd.supervision.policy import Backoff
from tests.browser.jobs import LIMITS

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromiums

HEALTHY = 60.0
RECYCLE_AFTER = 10_000.0
BACKOFF = Backoff(first=0.5, longest=2.0, healthy=HEALTHY, jitter=0)
LONG_ENOUGH = LIMITS.failures_before_alarm * (1.0 + BACKOFF.longest)
"""Seconds for so many launches, each with the wait behind it."""


class Watched(Browser):
    """Keeps what it has told of Chromium."""

    def __init__(self, *, longest: float = BACKOFF.longest) -> None:
        settings = InstanceSettings(
            launch=LaunchSettings(),
            contexts=2,
            idle_s=10_000,
            recycle_after_s=RECYCLE_AFTER,
            recycle_bytes=1 << 30,
        )
        self.told: list[str | None] = []
        backoff = replace(BACKOFF, longest=longest)
        super().__init__(settings, queue=2, backoff=backoff, on_down=self.told.append)


@pytest.fixture
def browser() -> Watched:
    return Watched()


async def test_browser_that_never_starts_is_reported_once_and_its_return_when_it_lasts(
    browser: Watched,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    chromiums.launch_fails = "no Chromium was found"
    await nursery.start(browser.run)
    await trio.sleep(10 * LONG_ENOUGH)
    assert browser.told == ["launch failed: no Chromium was found"]
    chromiums.launch_fails = ""
    await trio.sleep(5)
    assert browser.is_ready
    assert len(browser.told) == 1  # it may be gone in a moment
    await trio.sleep(HEALTHY)
    assert browser.told[1:] == [None]


async def test_early_ends_are_reported_across_restarts_of_the_actor(
    browser: Watched,
    chromiums: PlayedChromiums,
    autojump_clock: MockClock,
) -> None:
    for turn in range(LIMITS.failures_before_alarm):
        assert browser.told == []
        async with trio.open_nursery() as instance:
            await instance.start(browser.run)
            while not browser.is_ready:  # noqa: ASYNC110 - it tells nobody
                await trio.sleep(0.1)
            chromiums.launched[-1].exit()
            await trio.sleep(0.1)
            instance.cancel_scope.cancel()
        assert len(chromiums.launched) == turn + 1
    assert browser.told == ["crashed: Chromium ended: signal 9"]


async def test_rare_ends_are_not_reported(
    browser: Watched,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await nursery.start(browser.run)
    for _ in range(2 * LIMITS.failures_before_alarm):
        await trio.sleep(HEALTHY + 5)
        chromiums.launched[-1].exit()
    assert browser.told == []
    caplog.set_level(logging.INFO, "smartlinkd")
    caplog.clear()
    await trio.sleep(5)
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    assert events == [LogEvent.BROWSER_RESTARTED, LogEvent.BROWSER_READY]


async def test_failed_launches_are_not_reported_while_a_recycled_browser_serves(
    browser: Watched,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    await nursery.start(browser.run)
    await trio.sleep(RECYCLE_AFTER - 100)
    chromiums.launch_fails = "no room"
    await trio.sleep(100 + 10 * LONG_ENOUGH)
    assert browser.status().is_ready
    assert browser.told == []
    chromiums.launched[0].exit()
    await trio.sleep(chromiums.launch_takes + 0.1)
    assert not browser.is_ready
    assert browser.told == ["launch failed: no room"]


async def test_end_of_a_recycled_browser_is_counted_and_the_next_launched_at_once(
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser = Watched(longest=500)
    down: list[float] = []
    monkeypatch.setattr(browser.downtime, "observe", down.append)
    await nursery.start(browser.run)
    await trio.sleep(RECYCLE_AFTER + 2 * chromiums.launch_takes - 100)
    chromiums.launch_fails = "no room"
    await trio.sleep(2000)
    chromiums.launch_fails = ""
    down.clear()
    caplog.clear()
    chromiums.launched[0].exit()
    await trio.sleep(chromiums.launch_takes + 0.1)
    assert browser.is_ready
    assert browser.status().last_end == "crashed: Chromium ended: signal 9"
    assert down == [pytest.approx(chromiums.launch_takes, abs=0.1)]
    told = [record.event for record in caplog.records if hasattr(record, "event")]
    assert told == [LogEvent.BROWSER_RESTARTED]
