"""Warm contexts on a browser that is played: who gets which tab, and what is thrown away."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.errors import CallTimedOut, SessionGone
from smartlinkd.browser.tab_pool import TabPool
from tests.browser.jobs import (
    LIMITS,
    JobRunner,
    cancel,
    finish,
    nothing,
    open_tab,
    tab_spec,
)

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium


async def test_tabs_of_one_key_share_a_context_and_other_keys_do_not(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    jobs = [
        await runner.begin(tab_spec(key, tab))
        for key, tab in (("a", "links"), ("a", "products"), ("b", "links"))
    ]
    links, products, other = (job.page for job in jobs)
    assert links is not None and products is not None and other is not None  # noqa: PT018
    assert links is not products
    assert links.context is products.context
    assert links.context is not other.context
    assert other.context.cookies[0]["value"] == "b"
    for job in jobs:
        await finish(job)


@pytest.mark.parametrize("fails", [True, False], ids=["failed", "cancelled"])
async def test_failed_or_cancelled_job_invalidates_its_context(
    fails: bool, runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    idle = await runner.do(tab_spec(tab="products"))
    job = await runner.begin(tab_spec())
    await (finish(job, SessionGone("it crashed")) if fails else cancel(job))
    assert (played.contexts, played.pages, len(pool)) == ([], [], 0)
    assert await runner.do(tab_spec(tab="products")) is not idle


@pytest.mark.parametrize("opens", [True, False])
async def test_cancelled_tab_is_closed_while_its_context_is_still_in_use(
    opens: bool, runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await runner.begin(tab_spec(tab="products"))
    given_up = await runner.begin(tab_spec() if opens else tab_spec(open_tab=never_opens))
    assert len(played.pages) == 2
    await cancel(given_up)
    assert played.pages == [reading.page]
    await finish(reading)
    assert (played.contexts, played.pages) == ([], [])


async def never_opens(_: object) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_tab_takes_its_concurrency_of_jobs_and_the_rest_wait(
    concurrency: int, runner: JobRunner, autojump_clock: MockClock
) -> None:
    jobs = [await runner.begin(tab_spec(concurrency=concurrency)) for _ in range(5)]
    at_work = [job.page for job in jobs if job.page is not None]
    assert len(at_work) == concurrency
    assert len(set(at_work)) == 1
    assert at_work[0].opened == 1
    for job in jobs:
        await finish(job)
    assert {job.page for job in jobs} == set(at_work)


async def test_tab_that_does_not_open_is_not_kept(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    async def fail(_: object) -> None:
        raise SessionGone("no")

    with pytest.raises(SessionGone):
        await pool.use(tab_spec(open_tab=fail), open_tab)
    await wait_all_tasks_blocked()
    assert (played.contexts, played.pages) == ([], [])
    assert (await runner.do(tab_spec())).opened == 1


async def test_job_on_an_invalidated_context_goes_on_before_it_is_disposed_of(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    failing, going_on = [await runner.begin(tab_spec(concurrency=2)) for _ in range(2)]
    await finish(failing, SessionGone("no"))
    assert len(played.contexts) == 1
    fresh = await runner.do(tab_spec(concurrency=2))
    assert fresh is not going_on.page
    assert going_on.page in played.pages
    await finish(going_on)
    assert played.contexts == [fresh.context]


async def test_tab_that_does_not_close_delays_the_next_job_for_a_bounded_time(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await runner.begin(tab_spec(tab="products"))
    given_up = await runner.begin(tab_spec())
    played.hoards = True
    began = trio.current_time()
    await cancel(given_up)
    assert trio.current_time() == began
    another = await runner.do(tab_spec("another"))
    assert trio.current_time() == began
    next_one = await runner.do(tab_spec())
    assert trio.current_time() - began == LIMITS.dispose_timeout_s
    played.hoards = False
    await finish(reading)
    assert played.contexts == [another.context, next_one.context]


@pytest.mark.parametrize("tab", ["links", "products"])
async def test_waiting_job_does_not_get_a_context_that_was_invalidated_meanwhile(
    tab: str, runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    never = trio.Event()

    async def open_slowly(page: Any) -> None:
        await never.wait()

    if tab == "links":  # waits for the work to end
        first = await runner.begin(tab_spec())
        second = await runner.begin(tab_spec())
    else:  # waits for the tab to be opened
        first = await runner.begin(tab_spec(concurrency=2, open_tab=open_slowly))
        second = await runner.begin(tab_spec(concurrency=2))
    first_context = played.contexts[0]
    await cancel(first)
    await wait_all_tasks_blocked()
    assert second.page is not None
    assert second.page.context is not first_context
    await finish(second)
    assert played.contexts == [second.page.context]


@pytest.mark.parametrize("waits_for", ["a job", "an opening tab", "a new context"])
async def test_cancelled_wait_invalidates_nothing(
    waits_for: str, runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 0 if waits_for == "a job" else 1
    spec = tab_spec(concurrency=1 if waits_for == "a job" else 2)
    first = await runner.begin(spec)
    if waits_for == "an opening tab":
        await trio.sleep(4.5)  # a context and a tab are made, and the tab is being opened
    waiting = await runner.begin(spec)
    assert waiting.page is None
    await cancel(waiting)
    await finish(first)
    played.call_takes = 0
    assert await runner.do(spec) is first.page


async def test_contexts_and_tabs_are_made_a_few_at_a_time(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    jobs = [await runner.begin(tab_spec(key)) for key in "abcde"]
    for job in jobs:
        await finish(job)
    assert played.most_being_made == LIMITS.concurrent_starts


@pytest.mark.parametrize("half_seconds", range(14))
async def test_job_cancelled_at_any_step_leaves_nothing(
    half_seconds: int, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1  # two to make a context, two to make a tab, one to open it

    async def work(_: object) -> None:
        await trio.sleep(1)

    with trio.move_on_after(half_seconds / 2) as scope:
        await pool.use(tab_spec(), work)
    assert scope.cancelled_caught == (half_seconds <= 12)
    if scope.cancelled_caught:
        await trio.sleep(3)
        assert (played.contexts, played.pages) == ([], [])
        played.call_takes = 0
        await pool.use(tab_spec(), work)
    assert len(played.contexts) == len(played.pages) == 1


async def test_browser_that_opens_no_more_tabs_becomes_unusable(
    pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    accounts = count()

    async def use_anew(*, opens: bool) -> None:
        played.opens = opens
        with nullcontext() if opens else pytest.raises(CallTimedOut):
            await pool.use(tab_spec(str(next(accounts))), nothing)

    for opens in (False, True, False):  # one by itself says nothing
        await use_anew(opens=opens)
    with trio.move_on_after(100) as scope:
        await pool.wait_unusable()
    assert scope.cancelled_caught
    with trio.move_on_after(LIMITS.tab_failure_s):  # who had no more time than that
        await use_anew(opens=False)
    with trio.fail_after(1):
        assert await pool.wait_unusable() == "it opened no more tabs"
