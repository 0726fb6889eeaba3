"""The browser's actor while something waits: work for its turn, the next launch for its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import BrowserNotReady
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.supervision.policy import Backoff
from tests.browser.jobs import LIMITS
from tests.browser.test_actor import begin, overdue, ready_browser, running

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromiums

SETTINGS = InstanceSettings(
    launch=LaunchSettings(),
    contexts=2,
    idle_s=10_000,
    recycle_after_s=10_000,
    recycle_bytes=1 << 30,
)


async def test_work_whose_turn_comes_while_the_browser_is_not_ready_is_refused(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        works = [await begin(browser, nursery, str(n)) for n in range(LIMITS.concurrent_jobs + 1)]
        chromiums.launched[0].mute = True
        await trio.sleep(4)  # a probe has failed
        assert not browser.is_ready
        chromiums.launched[0].mute = False
        works[0].end.set()
        await wait_all_tasks_blocked()
        assert isinstance(works[-1].error, BrowserNotReady)


async def test_a_long_wait_for_the_next_launch_is_no_silence(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    """Else the service manager would restart the daemon for a Chromium that does not stay up."""
    backoff = Backoff(first=30.0, longest=30.0, healthy=60.0, jitter=0)
    browser = Browser(SETTINGS, queue=1, backoff=backoff, on_down=lambda _why: None)
    async with running(browser):
        await trio.sleep(chromiums.launch_takes + 1)
        chromiums.launched[0].exit()
        for _ in range(29):
            await trio.sleep(1)
            assert overdue(browser) <= LIMITS.poll_interval_s
        assert len(chromiums.launched) == 1
