"""The browser actor tells when Chromium cannot be kept up, and when it can be again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.browser.actor import Browser
from smartlinkd.supervision.policy import Backoff
from tests.browser.jobs import LIMITS, begin_job, finish, instance_settings, tab_spec

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromiums

HEALTHY = 60.0
RECYCLE_AFTER = 10_000.0
BACKOFF = Backoff(first=0.5, longest=2.0, healthy=HEALTHY, jitter=0)
LONG_ENOUGH = LIMITS.failures_before_alarm * (1.0 + BACKOFF.longest)
"""Seconds for so many launches, each with the wait behind it."""


class WatchedBrowser(Browser):
    """Keeps its alarms: why Chromium is down, and None when it is up again."""

    def __init__(self) -> None:
        self.told: list[str | None] = []
        settings = instance_settings(recycle_after_s=RECYCLE_AFTER)
        super().__init__(settings, queue=2, backoff=BACKOFF, on_down=self.told.append)


@pytest.fixture
def browser() -> WatchedBrowser:
    return WatchedBrowser()


async def test_browser_that_never_starts_alarms_once_and_ends_it_when_healthy(
    browser: WatchedBrowser,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    chromiums.launch_fails = "no Chromium was found"
    await nursery.start(browser.run)
    await trio.sleep(10 * LONG_ENOUGH)
    why = "launch failed: no Chromium was found"
    assert (browser.told, browser.status().last_end) == ([why], why)
    assert browser.restarts["launch failed"] == pytest.approx(50, abs=3)  # each 1 s, then 2 s
    chromiums.launch_fails = ""
    await trio.sleep(5)
    assert browser.is_ready
    assert len(browser.told) == 1  # it may be gone in a moment
    await trio.sleep(HEALTHY)
    assert browser.told[1:] == [None]


async def test_early_ends_alarm_across_restarts_of_the_actor(
    browser: WatchedBrowser,
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


async def test_rare_ends_do_not_alarm(
    browser: WatchedBrowser,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    await nursery.start(browser.run)
    for _ in range(2 * LIMITS.failures_before_alarm):
        await trio.sleep(HEALTHY + 5)
        chromiums.launched[-1].exit()
    assert browser.told == []


async def test_failed_launches_alarm_once_no_recycled_browser_serves(
    browser: WatchedBrowser,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    await nursery.start(browser.run)
    await trio.sleep(RECYCLE_AFTER - 100)
    chromiums.launch_fails = "no room"
    await trio.sleep(100 + 10 * LONG_ENOUGH)
    assert (browser.is_ready, browser.status().pid) == (True, 1)
    await finish(await begin_job(browser, tab_spec(), nursery))
    assert browser.told == []
    chromiums.launched[0].exit()
    await trio.sleep(chromiums.launch_takes + BACKOFF.longest + 0.1)
    assert not browser.is_ready
    assert browser.told == ["launch failed: no room"]
