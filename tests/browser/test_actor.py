"""The browser actor over browsers that are played: what it says of them, and what it does next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.actor import Browser, BrowserState, BrowserStatus
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import BrowserNotReady, Disconnected
from smartlinkd.browser.instance import BrowserInstance, InstanceSettings
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import Overloaded
from smartlinkd.supervision.policy import Backoff
from tests.browser.jobs import LIMITS, never_invalid
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromiums

QUEUE = LIMITS.min_queue + 2
HEALTHY = 60.0
RECYCLE_AFTER = 1_000.0
BACKOFF = Backoff(first=0.5, longest=2.0, healthy=HEALTHY, jitter=0)
A_MOMENT = 0.01


async def nothing(_: object) -> None:
    pass


def tab_spec(key: str = "a") -> TabSpec:
    return TabSpec(key, list, "tab", nothing, never_invalid)


def look(browser: Browser) -> BrowserStatus:
    return browser.status()


def ready(browser: Browser) -> bool:
    return browser.is_ready


def a_browser(queue: int = QUEUE) -> Browser:
    settings = InstanceSettings(
        launch=LaunchSettings(),
        contexts=2,
        idle_s=10_000,
        recycle_after_s=RECYCLE_AFTER,
        recycle_bytes=1 << 30,
    )
    return Browser(settings, queue=queue, backoff=BACKOFF, on_down=lambda _why: None)


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


class Work:
    """A piece of work that goes on until it is told to end, and what became of it."""

    def __init__(self) -> None:
        self.page: Any = None
        self.end = trio.Event()
        self.done = trio.Event()
        self.error: Refused | None = None

    async def run(self, browser: Browser, key: str) -> None:
        try:
            await browser.use(tab_spec(key), self._work)
        except Refused as refusal:
            self.error = refusal
        self.done.set()

    async def _work(self, page: Any) -> None:
        self.page = page
        await self.end.wait()
        await page.evaluate("")


async def begin(browser: Browser, nursery: trio.Nursery, key: str = "a") -> Work:
    work = Work()
    nursery.start_soon(work.run, browser, key)
    await wait_all_tasks_blocked()
    return work


# Ready, and not


async def test_it_serves_before_its_browser_is_up_and_refuses_at_once(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    async with running(browser):
        began = trio.current_time()
        with pytest.raises(BrowserNotReady):
            await browser.use(tab_spec(), nothing)
        assert trio.current_time() == began
        assert (ready(browser), look(browser).state) == (False, BrowserState.STARTING)
        await trio.sleep(chromiums.launch_takes + A_MOMENT)
        assert (ready(browser), look(browser).state) == (True, BrowserState.READY)


async def test_work_is_done_and_its_value_returned(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async def work(page: Any) -> int:
        await page.evaluate("")
        return 42

    async with ready_browser(chromiums) as browser:
        assert await browser.use(tab_spec(), work) == 42


async def test_what_the_work_raises_is_its_caller_s(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    error = Refused("mine")

    async def work(_: object) -> None:
        raise error

    async with ready_browser(chromiums) as browser:
        with pytest.raises(Refused, match="mine"):
            await browser.use(tab_spec(), work)
        await browser.use(tab_spec(), nothing)


async def test_its_status_tells_of_the_browser_and_the_work(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        for key in "ab":
            await begin(browser, nursery, key)
        status = browser.status()
        assert (status.state, status.is_ready) == (BrowserState.READY, True)
        assert (status.version, status.pid) == ("Chromium 1", 1)
        assert (status.working, status.contexts, status.waiting) == (2, 2, 0)
        assert (status.restarts, status.last_end) == (0, None)
        nursery.cancel_scope.cancel()


async def test_the_times_without_a_browser_are_known(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        first = chromiums.launch_takes
        count, seconds = observed(browser.downtime)[""]
        assert (count, round(seconds, 1)) == (1, first)
        await trio.sleep(HEALTHY)  # else it would wait before the next one
        chromiums.launch_takes = 7.0
        chromiums.running[0].exit()
        await trio.sleep(7.0 + A_MOMENT)
        assert ready(browser)
        count, seconds = observed(browser.downtime)[""]
        assert (count, round(seconds, 1)) == (2, first + 7.0)


async def test_one_that_is_recycled_leaves_no_time_without(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        await trio.sleep(RECYCLE_AFTER + LIMITS.measure_interval_s + chromiums.launch_takes)
        assert len(chromiums.launched) == 2
        assert observed(browser.downtime)[""][0] == 1


async def test_too_much_work_is_refused_at_once(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        works = [
            await begin(browser, nursery, str(n)) for n in range(LIMITS.concurrent_jobs + QUEUE)
        ]
        assert sum(work.page is not None for work in works) == LIMITS.concurrent_jobs
        assert browser.status().waiting == QUEUE
        with pytest.raises(Overloaded):
            await browser.use(tab_spec(), nothing)
        for work in works:
            work.end.set()
            await work.done.wait()
        assert {work.error for work in works} == {None}


async def test_what_comes_in_one_moment_is_done_however_short_the_queue_is(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums, queue=1) as browser:
        works = [Work() for _ in range(LIMITS.min_queue)]
        for n, work in enumerate(works):
            work.end.set()
            nursery.start_soon(work.run, browser, str(n // 4))  # of each account a submit, 3 reads
        for work in works:
            await work.done.wait()
        assert {work.error for work in works} == {None}


async def test_browser_whose_probe_failed_refuses_jobs(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        chromiums.launched[0].mute = True
        await trio.sleep(4)
        assert browser.status().state is BrowserState.UNRESPONSIVE
        with pytest.raises(BrowserNotReady):
            await browser.use(tab_spec(), nothing)


# Launched again


async def crash(browser: Browser, chromiums: PlayedChromiums) -> float:
    """When the next one was up after a crash of this one, in seconds, its launch aside."""
    began = trio.current_time()
    chromiums.launched[-1].exit()
    await wait_all_tasks_blocked()
    assert not ready(browser)
    while not ready(browser):  # noqa: ASYNC110 - the clock is not real
        await trio.sleep(A_MOMENT)
    return trio.current_time() - began - chromiums.launch_takes


async def test_after_a_healthy_minute_the_next_launch_is_at_once(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        for _ in range(3):
            await trio.sleep(HEALTHY)
            assert await crash(browser, chromiums) < 2 * A_MOMENT
        assert browser.status().pid == 4


async def test_without_one_the_waits_grow_and_start_over_after_it(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        waits = [await crash(browser, chromiums) for _ in range(4)]
        assert waits == pytest.approx([0.5, 1.0, 2.0, 2.0], abs=2 * A_MOMENT)
        await trio.sleep(HEALTHY)
        waits = [await crash(browser, chromiums) for _ in range(2)]
        assert waits == pytest.approx([0.0, 0.5], abs=2 * A_MOMENT)


async def test_a_crash_is_counted_and_shown_until_the_next_one_is_up(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        ready_since = browser.status().since
        chromiums.launched[0].exit()
        await wait_all_tasks_blocked()
        status = browser.status()
        assert (status.state, status.pid, status.version) == (BrowserState.WAITING, None, None)
        assert status.since > ready_since
        assert (status.restarts, status.last_end) == (1, "crashed: Chromium ended: signal 9")
        await trio.sleep(0.5 + A_MOMENT)
        assert look(browser).state is BrowserState.STARTING
        await trio.sleep(chromiums.launch_takes)
        assert (look(browser).state, look(browser).pid) == (BrowserState.READY, 2)
        assert {reason for reason, count in browser.restarts.items() if count} == {"crashed"}


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("crashed", lambda chromium: chromium.exit()),
        ("disconnected", lambda chromium: chromium.close()),
        ("unresponsive", lambda chromium: setattr(chromium, "mute", True)),
        ("recycled", lambda chromium: setattr(chromium, "megabytes", 2_000)),
    ],
)
async def test_each_reason_is_counted(
    reason: str, end: Callable[[Any], None], chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        end(chromiums.launched[0])
        await trio.sleep(HEALTHY)
        assert {name: count for name, count in browser.restarts.items() if count} == {reason: 1}
        assert (browser.status().last_end or "").startswith(f"{reason}: ")
        assert [chromium.pid for chromium in chromiums.running] == [2]


async def test_a_failed_launch_is_tried_again_for_as_long_as_it_takes(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    chromiums.launch_fails = "no Chromium was found"
    async with running(browser):
        await trio.sleep(chromiums.launch_takes + A_MOMENT)
        assert look(browser).state is BrowserState.WAITING
        assert look(browser).last_end == "launch failed: no Chromium was found"
        await trio.sleep(600)
        assert browser.restarts["launch failed"] == pytest.approx(200, abs=3)  # each 1 s, then 2 s
        chromiums.launch_fails = ""
        await trio.sleep(3 + A_MOMENT)
        assert look(browser).state is BrowserState.READY


async def test_one_that_runs_no_script_is_a_failed_launch(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    chromiums.prepare = lambda chromium: setattr(chromium, "mute", chromium.pid == 1)
    async with running(browser):
        await trio.sleep(30)
        assert browser.restarts["launch failed"] == 1
        assert browser.status().pid == 2
        assert [chromium.pid for chromium in chromiums.running] == [2]


async def test_work_under_way_fails_with_the_browser_and_what_waits_is_refused(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        works = [
            await begin(browser, nursery, str(n)) for n in range(LIMITS.concurrent_jobs + QUEUE)
        ]
        chromiums.launched[0].exit()
        for work in works:
            work.end.set()
        with trio.fail_after(A_MOMENT):
            for work in works:
                await work.done.wait()
        assert {type(work.error) for work in works[: LIMITS.concurrent_jobs]} == {Disconnected}
        assert {type(work.error) for work in works[LIMITS.concurrent_jobs :]} == {BrowserNotReady}


# Recycled


async def test_the_next_one_is_up_before_the_old_one_goes(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        chromiums.launch_takes = 10
        seen = []
        while look(browser).pid == 1:
            assert browser.is_ready
            await browser.use(tab_spec(), nothing)
            seen.append([chromium.pid for chromium in chromiums.running])
            await trio.sleep(1)
        assert browser.is_ready
        await wait_all_tasks_blocked()
        assert [chromium.pid for chromium in chromiums.running] == [2]
        assert seen[-1] == [1]
        assert browser.restarts["recycled"] == 1


async def test_recycling_ends_no_work_and_begins_none_on_the_old_one(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        old = await begin(browser, nursery)
        await trio.sleep(RECYCLE_AFTER + 100)
        new = await begin(browser, nursery)
        assert [work.page.context.chromium.pid for work in (old, new)] == [1, 2]
        assert len(chromiums.running) == 2
        for work in (old, new):
            work.end.set()
            await work.done.wait()
            assert work.error is None
        await wait_all_tasks_blocked()
        assert [chromium.pid for chromium in chromiums.running] == [2]


async def test_while_the_next_one_does_not_start_the_old_one_serves(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        chromiums.launch_fails = "no memory"
        await trio.sleep(RECYCLE_AFTER + 200)
        assert (look(browser).state, look(browser).pid) == (BrowserState.READY, 1)
        assert look(browser).last_end == "launch failed: no memory"
        await browser.use(tab_spec(), nothing)
        chromiums.launch_fails = ""
        await trio.sleep(10)
        assert (look(browser).state, look(browser).pid) == (BrowserState.READY, 2)
        assert [chromium.pid for chromium in chromiums.running] == [2]


async def test_an_old_one_that_dies_meanwhile_is_not_shown_any_more(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        chromiums.launch_takes = 100
        await trio.sleep(RECYCLE_AFTER + LIMITS.measure_interval_s)
        assert look(browser).restarts == 1
        chromiums.launched[0].exit()
        await wait_all_tasks_blocked()
        assert not browser.is_ready
        assert (look(browser).state, look(browser).pid) == (BrowserState.STARTING, None)
        await trio.sleep(100)
        assert (look(browser).state, look(browser).pid) == (BrowserState.READY, 2)


# Its own end


async def test_restarted_actor_starts_afresh_and_goes_on_counting(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    for number in (1, 2):
        async with running(browser):
            await trio.sleep(chromiums.launch_takes + A_MOMENT)
            assert look(browser).pid == 2 * number - 1
            await crash(browser, chromiums)
            assert look(browser).restarts == number
        assert chromiums.running == []
        assert (ready(browser), look(browser).pid) == (False, None)
        with pytest.raises(BrowserNotReady):
            await browser.use(tab_spec(), nothing)


Situation = Callable[[Browser, "PlayedChromiums", trio.Nursery], Awaitable[None]]


async def work_is_under_way(
    browser: Browser, chromiums: PlayedChromiums, nursery: trio.Nursery
) -> None:
    await begin(browser, nursery)


async def launch_is_under_way(
    browser: Browser, chromiums: PlayedChromiums, nursery: trio.Nursery
) -> None:
    chromiums.launched[0].exit()
    await trio.sleep(1)


async def two_are_up(browser: Browser, chromiums: PlayedChromiums, nursery: trio.Nursery) -> None:
    chromiums.launched[0].megabytes = 2_000
    await begin(browser, nursery)
    await trio.sleep(LIMITS.measure_interval_s + chromiums.launch_takes)
    assert len(chromiums.running) == 2


@pytest.mark.parametrize("situation", [work_is_under_way, launch_is_under_way, two_are_up])
async def test_cancelled_it_leaves_no_browser(
    situation: Situation,
    chromiums: PlayedChromiums,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    async with ready_browser(chromiums) as browser:
        await situation(browser, chromiums, nursery)
    assert chromiums.running == []


# Its signs of life


def overdue(browser: Browser) -> float:
    """Seconds for which a sign of life of the loop that keeps Chromium up is due."""
    heartbeat = browser.heartbeat
    return trio.current_time() - heartbeat.last - heartbeat.allowance_s


async def test_a_browser_that_is_up_shows_signs_of_life(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    async with ready_browser(chromiums) as browser:
        for _ in range(100):
            await trio.sleep(LIMITS.poll_interval_s)
            assert overdue(browser) <= LIMITS.poll_interval_s


async def test_a_browser_that_will_not_start_shows_signs_of_life_all_the_same(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    browser = a_browser()
    chromiums.launch_fails = "out of luck"
    async with running(browser):
        for _ in range(200):
            await trio.sleep(0.5)
            assert overdue(browser) <= 0


async def test_a_launch_that_does_not_come_to_an_end_is_no_sign_of_life(
    chromiums: PlayedChromiums, autojump_clock: MockClock
) -> None:
    chromiums.launch_takes = 10_000.0
    browser = a_browser()
    async with running(browser):
        await trio.sleep(LaunchSettings().start_timeout + LIMITS.first_steps_s)
        assert overdue(browser) <= 0
        await trio.sleep(100)
        assert overdue(browser) >= 99


async def test_a_browser_that_nobody_says_is_not_well_is_no_sign_of_life(
    chromiums: PlayedChromiums, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the loop that probes hangs: it is not ready, and does not end."""
    async with ready_browser(chromiums) as browser:
        monkeypatch.setattr(BrowserInstance, "is_ready", property(lambda _: False))
        await trio.sleep(100)
        # What a launch may take is over by then.
        assert (
            overdue(browser)
            >= 100 - LIMITS.first_steps_s - LaunchSettings().start_timeout - LIMITS.poll_interval_s
        )
