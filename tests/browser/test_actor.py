"""The browser actor over browsers that are played: what it says of them, and what it does next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.actor import Browser, BrowserState, DownListener
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import BrowserNotReady, Disconnected
from smartlinkd.supervision.actor import Overloaded
from smartlinkd.supervision.policy import Backoff
from tests.browser.jobs import LIMITS, Job, begin_job, instance_settings, nothing, tab_spec
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromiums

QUEUE = LIMITS.min_queue + 2
HEALTHY = 60.0
RECYCLE_AFTER = 1_000.0
BACKOFF = Backoff(first=0.5, longest=2.0, healthy=HEALTHY, jitter=0)
A_MOMENT = 0.01


def a_browser(
    queue: int = QUEUE,
    backoff: Backoff = BACKOFF,
    on_down: DownListener = lambda _why: None,
) -> Browser:
    settings = instance_settings(recycle_after_s=RECYCLE_AFTER)
    return Browser(settings, queue=queue, backoff=backoff, on_down=on_down)


@asynccontextmanager
async def running(browser: Browser) -> AsyncIterator[None]:
    """One instance of the actor for the length of the block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(browser.run)
        yield
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def ready_browser(chromiums: PlayedChromiums, queue: int = QUEUE) -> AsyncIterator[Browser]:
    browser = a_browser(queue)
    async with running(browser):
        await trio.sleep(chromiums.launch_takes + A_MOMENT)
        assert browser.is_ready
        yield browser


async def begin(browser: Browser, nursery: trio.Nursery, key: str = "a") -> Job:
    return await begin_job(browser, tab_spec(key), nursery, calls_at_end=True)


# Ready, and not


def downtime(browser: Browser) -> tuple[int, float]:
    """The number of times without a browser, and their seconds."""
    count, seconds = observed(browser.downtime)[""]
    return int(count), round(seconds, 1)


async def test_full_queue_refuses_jobs_and_a_crash_those_that_wait_in_it(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        works = [
            await begin(browser, nursery, str(n)) for n in range(LIMITS.concurrent_jobs + QUEUE)
        ]
        assert sum(work.page is not None for work in works) == LIMITS.concurrent_jobs
        status, working = browser.status(), LIMITS.concurrent_jobs
        assert (status.jobs_running, status.contexts, status.jobs_waiting) == (
            working,
            working,
            QUEUE,
        )
        with pytest.raises(Overloaded):
            await browser.use(tab_spec(), nothing)
        chromiums.launched[0].exit()
        for work in works:
            work.end.set()
        with trio.fail_after(A_MOMENT):
            for work in works:
                await work.done.wait()
        assert {type(work.error) for work in works[:working]} == {Disconnected}
        assert {type(work.error) for work in works[working:]} == {BrowserNotReady}


async def test_burst_of_jobs_is_done_however_short_the_queue(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums, queue=1) as browser:
        # Of each account a submit and three reads.
        works = [Job(browser, tab_spec(str(n // 4))) for n in range(LIMITS.min_queue)]
        for work in works:
            work.end.set()
            nursery.start_soon(work.run)
        for work in works:
            await work.done.wait()
        assert {work.error for work in works} == {None}


async def test_job_whose_turn_comes_after_a_failed_probe_is_refused(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        works = [await begin(browser, nursery, str(n)) for n in range(LIMITS.concurrent_jobs + 1)]
        chromiums.launched[0].mute = True
        await trio.sleep(4)
        assert browser.status().state is BrowserState.UNRESPONSIVE
        chromiums.launched[0].mute = False
        works[0].end.set()
        await wait_all_tasks_blocked()
        assert isinstance(works[-1].error, BrowserNotReady)


# Launched again


async def crash(browser: Browser, chromiums: PlayedChromiums) -> float:
    """Crash the browser, and return the seconds without one, its launch aside."""
    began, crashed = trio.current_time(), browser.status().pid
    chromiums.launched[-1].exit()
    while browser.status().pid in (crashed, None):  # noqa: ASYNC110 - the clock is not real
        await trio.sleep(A_MOMENT)
    return trio.current_time() - began - chromiums.launch_takes


async def test_waits_before_launches_grow_until_a_healthy_minute(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        waits = [await crash(browser, chromiums) for _ in range(4)]
        assert waits == pytest.approx([0.5, 1.0, 2.0, 2.0], abs=2 * A_MOMENT)
        await trio.sleep(HEALTHY)
        waits = [await crash(browser, chromiums) for _ in range(2)]
        assert waits == pytest.approx([0.0, 0.5], abs=2 * A_MOMENT)


async def test_crash_is_shown_until_the_next_browser_is_up(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        before = browser.status()
        assert (before.state, before.ready) == (BrowserState.READY, True)
        assert (before.pid, before.version) == (1, "Chromium 1")
        assert (before.restarts, before.last_restart_reason) == (0, None)
        assert downtime(browser) == (1, chromiums.launch_takes)
        chromiums.launched[0].exit()
        await wait_all_tasks_blocked()
        status = browser.status()
        assert (status.state, status.pid, status.version) == (BrowserState.WAITING, None, None)
        assert status.since > before.since
        assert (status.restarts, status.last_restart_reason) == (
            1,
            "crashed: Chromium ended: signal 9",
        )
        await trio.sleep(0.5 + A_MOMENT)
        assert browser.status().state is BrowserState.STARTING
        await trio.sleep(chromiums.launch_takes)
        assert (browser.status().state, browser.status().pid) == (BrowserState.READY, 2)
        assert downtime(browser) == (2, 2 * chromiums.launch_takes + 0.5)
        assert {reason for reason, count in browser.restarts.items() if count} == {"crashed"}


# Recycled


async def test_recycling_ends_no_job_and_starts_none_on_the_old_browser(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        old = await begin(browser, nursery)
        await trio.sleep(RECYCLE_AFTER + 100)
        new = await begin(browser, nursery)
        assert [job.page.context.chromium.pid for job in (old, new) if job.page] == [1, 2]
        assert len(chromiums.running) == 2
        for work in (old, new):
            work.end.set()
            await work.done.wait()
            assert work.error is None
        await wait_all_tasks_blocked()
        assert [chromium.pid for chromium in chromiums.running] == [2]
        assert {reason for reason, count in browser.restarts.items() if count} == {"recycled"}


# Its alarm: that Chromium cannot be kept up, and that it can be again

LONG_ENOUGH = LIMITS.failures_before_alarm * (1.0 + BACKOFF.longest)
"""Seconds for so many launches, each with the wait behind it."""


async def test_browser_that_never_starts_alarms_once_and_ends_it_when_healthy(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    told: list[str | None] = []
    browser = a_browser(on_down=told.append)
    chromiums.launch_fails = "no Chromium was found"
    async with running(browser):
        await trio.sleep(10 * LONG_ENOUGH)
        why = "launch failed: no Chromium was found"
        assert (told, browser.status().last_restart_reason) == ([why], why)
        assert browser.restarts["launch failed"] == pytest.approx(50, abs=3)  # each 1 s, then 2 s
        chromiums.launch_fails = ""
        await trio.sleep(5)
        assert browser.is_ready
        assert len(told) == 1  # it may be gone in a moment
        await trio.sleep(HEALTHY)
        assert told[1:] == [None]


async def test_early_ends_alarm_across_restarts_of_the_actor(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    told: list[str | None] = []
    browser = a_browser(on_down=told.append)
    for turn in range(LIMITS.failures_before_alarm):
        assert told == []
        async with running(browser):
            await trio.sleep(chromiums.launch_takes + A_MOMENT)
            chromiums.launched[-1].exit()
            await trio.sleep(A_MOMENT)
        assert len(chromiums.launched) == turn + 1
    assert told == ["crashed: Chromium ended: signal 9"]


async def test_rare_ends_do_not_alarm(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    told: list[str | None] = []
    async with running(a_browser(on_down=told.append)):
        for _ in range(2 * LIMITS.failures_before_alarm):
            await trio.sleep(HEALTHY + 5)
            chromiums.launched[-1].exit()
    assert told == []


async def test_failed_launches_alarm_and_count_once_no_recycled_browser_serves(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    told: list[str | None] = []
    browser = a_browser(on_down=told.append)
    async with running(browser):
        await trio.sleep(RECYCLE_AFTER - 100)
        chromiums.launch_fails = "no room"
        await trio.sleep(100 + 10 * LONG_ENOUGH)
        assert (browser.is_ready, browser.status().pid) == (True, 1)
        await browser.use(tab_spec(), nothing)
        assert told == []
        began = browser.status().since
        chromiums.launched[0].exit()
        in_time = chromiums.launch_takes + BACKOFF.longest + A_MOMENT
        await trio.sleep(in_time)
        assert not browser.status().ready
        assert told == ["launch failed: no room"]
        await trio.sleep(2 * LONG_ENOUGH - in_time)
        assert browser.status().since > began
        chromiums.launch_fails = ""
        await trio.sleep(LONG_ENOUGH)
        assert browser.status().ready
        count, seconds = downtime(browser)
        assert count == 2
        assert seconds == pytest.approx(2 * LONG_ENOUGH, abs=5)


# Its own end


async def test_restarted_actor_starts_afresh_and_goes_on_counting(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    for number in (1, 2):
        async with running(browser):
            await trio.sleep(chromiums.launch_takes + A_MOMENT)
            assert browser.status().pid == 2 * number - 1
            await crash(browser, chromiums)
            assert browser.status().restarts == number
        assert chromiums.running == []
        assert (browser.is_ready, browser.status().pid) == (False, None)
        with pytest.raises(BrowserNotReady):
            await browser.use(tab_spec(), nothing)


# Its signs of life


def overdue(browser: Browser) -> float:
    """Seconds for which a sign of life of the loop that keeps Chromium up is due."""
    heartbeat = browser.heartbeat
    return trio.current_time() - heartbeat.last - heartbeat.allowance_s


@pytest.mark.parametrize("fails", ["", "out of luck"], ids=["up", "will not start"])
async def test_browser_that_is_kept_up_beats_whether_it_starts_or_not(
    fails: str, chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    chromiums.launch_fails = fails
    async with running(browser):
        for _ in range(100):
            await trio.sleep(LIMITS.poll_interval_s)
            assert overdue(browser) <= LIMITS.poll_interval_s


async def test_long_wait_for_the_next_launch_beats(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    """Else the service manager would restart the daemon for a Chromium that does not stay up."""
    browser = a_browser(backoff=Backoff(first=30.0, longest=30.0, healthy=60.0, jitter=0))
    async with running(browser):
        await trio.sleep(chromiums.launch_takes + 1)
        chromiums.launched[0].exit()
        for _ in range(29):
            await trio.sleep(1)
            assert overdue(browser) <= LIMITS.poll_interval_s
        assert len(chromiums.launched) == 1


async def test_launch_that_never_ends_misses_its_heartbeat(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    chromiums.launch_takes = 10_000.0
    browser = a_browser()
    async with running(browser):
        await trio.sleep(LaunchSettings().start_timeout + LIMITS.first_steps_s)
        assert overdue(browser) <= 0
        await trio.sleep(100)
        assert overdue(browser) >= 99
