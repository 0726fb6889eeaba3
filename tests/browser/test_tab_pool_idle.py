"""Warm contexts that nobody uses: which are kept, how long, and what became of them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.browser.tab_pool import TabPool
from tests.browser.jobs import (
    IDLE,
    LIMITS,
    POOL_SIZE,
    Job,
    JobRunner,
    cancel,
    finish,
    open_tab,
    tab_spec,
)

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium


async def test_a_tab_that_crashed_while_nobody_used_it_costs_nobody_anything(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first = await runner.do(tab_spec())
    first.is_gone = True
    second = await runner.do(tab_spec())
    assert second is not first
    assert second.opened == 1
    assert played.contexts == [second.context]


CHECK = "https://portal.test/verify"


def is_check(url: str, is_other: bool) -> bool:
    return url == CHECK and not is_other


async def test_what_a_tab_shows_while_nobody_uses_it_may_end_its_context(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    where = tab_spec(invalidates=is_check)
    page = await runner.do(where)
    page.show("https://portal.test/", False)
    page.show(CHECK, True)
    assert await runner.do(where) is page
    page.show(CHECK, False)
    page.show(CHECK, False)
    assert len(pool) == 0
    await wait_all_tasks_blocked()
    assert played.contexts == []
    assert await runner.do(where) is not page


async def test_who_works_meanwhile_ends_that_work_and_nobody_else_begins(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await runner.begin(tab_spec(invalidates=is_check))
    behind = await runner.begin(tab_spec(invalidates=is_check))
    assert job.page is not None
    job.page.show(CHECK, False)
    await wait_all_tasks_blocked()
    assert job.page in played.pages
    await finish(job)
    assert job.page not in played.pages
    assert behind.page not in (None, job.page)
    await finish(behind)


async def test_tab_that_was_led_away_is_opened_again_and_no_other_one(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await runner.begin(tab_spec(tab="products"))
    page = await runner.do(tab_spec())
    page.document_count += 1
    assert await runner.do(tab_spec()) is page
    assert page.opened == 2
    assert await runner.do(tab_spec()) is page
    assert page.opened == 2
    await finish(reading)
    assert await runner.do(tab_spec(tab="products")) is reading.page
    assert reading.page is not None
    assert reading.page.opened == 1
    assert played.contexts == [page.context]


async def test_tab_that_was_led_away_is_not_probed(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    """It may be busy there, and whoever opens it is to see where it is."""
    page = await runner.do(tab_spec())
    page.document_count += 1
    page.loops = True
    await trio.sleep(LIMITS.trusted_for_s)
    seen: list[object] = []

    async def see(page: object) -> None:
        seen.append(page)

    assert await runner.do(tab_spec(open_tab=see)) is page
    assert seen == [page]
    assert played.contexts == [page.context]


async def test_tab_whose_jobs_navigate_is_opened_once(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    page = await runner.do(tab_spec(is_navigated=True))
    page.document_count += 1
    assert await runner.do(tab_spec(is_navigated=True)) is page
    assert page.opened == 1


async def test_a_tab_that_cannot_be_opened_again_is_not_kept(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    fails = False

    async def open_or_fail(page: Any) -> None:
        await open_tab(page)
        if fails:
            raise NavigationFailed("https://portal.test/", "net::ERR_FAILED")

    where = tab_spec(open_tab=open_or_fail)
    page = await runner.do(where)
    page.document_count += 1
    fails = True
    job = Job(runner.pool, where)
    await job.run()
    assert isinstance(job.error, NavigationFailed)
    await wait_all_tasks_blocked()
    assert played.contexts == []
    fails = False
    assert await runner.do(where) is not page


async def test_a_tab_that_hangs_since_nobody_used_it_costs_a_wait(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first = await runner.do(tab_spec())
    first.loops = True
    await trio.sleep(LIMITS.trusted_for_s)
    began = trio.current_time()
    job = Job(runner.pool, tab_spec())
    job.end.set()
    await job.run()
    assert job.page is not first
    assert job.page is not None
    assert played.contexts == [job.page.context]
    assert trio.current_time() - began == LIMITS.tab_probe_timeout_s


async def test_a_tab_is_asked_only_when_it_was_not_used_for_a_while(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    page = await runner.do(tab_spec())
    asked = page.asked
    await trio.sleep(LIMITS.trusted_for_s * 0.9)
    await runner.do(tab_spec())
    await trio.sleep(LIMITS.trusted_for_s * 0.9)
    await runner.do(tab_spec())
    assert page.asked == asked
    await trio.sleep(LIMITS.trusted_for_s)
    assert await runner.do(tab_spec()) is page
    await runner.do(tab_spec())
    assert page.asked == asked + 1


async def test_a_tab_that_has_just_been_opened_is_not_asked_by_who_shares_it(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    """It may be busy with the work that it was opened for."""
    await trio.sleep(LIMITS.trusted_for_s)
    first = await runner.begin(tab_spec(concurrency=2))
    assert first.page is not None
    asked = first.page.asked
    second = await runner.begin(tab_spec(concurrency=2))
    assert second.page is first.page
    assert first.page.asked == asked
    for job in (first, second):
        await finish(job)


async def test_cancelled_probe_of_a_tab_invalidates_nothing(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    page = await runner.do(tab_spec())
    await trio.sleep(LIMITS.trusted_for_s)
    played.call_takes = 1
    asking = await runner.begin(tab_spec())
    assert asking.page is None
    await cancel(asking)
    assert await runner.do(tab_spec()) is page


async def test_work_on_another_tab_goes_on_when_one_hangs(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    hung = await runner.do(tab_spec())
    reading = await runner.begin(tab_spec(tab="products"))
    hung.loops = True
    await trio.sleep(LIMITS.trusted_for_s)
    with trio.fail_after(LIMITS.tab_probe_timeout_s + 0.1):
        await runner.pool.use(tab_spec(), open_tab)
    assert reading.page in played.pages
    assert hung not in played.pages
    await finish(reading)
    assert len(played.contexts) == 1


async def test_of_more_than_the_limit_the_least_recently_used_goes(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    pages = {}
    for key in ["a", "b", "a", "c"]:
        pages[key] = await runner.do(tab_spec(key))
        await trio.sleep(1)
    assert len(pool) == POOL_SIZE
    assert played.contexts == [pages["a"].context, pages["c"].context]


async def test_contexts_in_use_are_not_surplus(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    jobs = [await runner.begin(tab_spec(key)) for key in "abcd"]
    assert len(played.contexts) == 4
    for job in jobs:
        await finish(job)
    assert len(played.contexts) == POOL_SIZE


async def test_idle_contexts_go_and_used_ones_stay(
    runner: JobRunner,
    pool: TabPool,
    played: PlayedChromium,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    nursery.start_soon(pool.drop_idle)
    await runner.do(tab_spec("idle"))
    job = await runner.begin(tab_spec("in use"))
    await trio.sleep(IDLE * 0.9)
    assert len(played.contexts) == 2
    await trio.sleep(IDLE * 0.4)
    assert job.page is not None
    assert played.contexts == [job.page.context]
    await finish(job)
    await trio.sleep(IDLE * 0.9)
    assert len(played.contexts) == 1
    await trio.sleep(IDLE * 0.4)
    assert played.contexts == []
    nursery.cancel_scope.cancel()


async def test_a_context_that_is_taken_up_while_idle_ones_go_is_a_new_one(
    runner: JobRunner,
    pool: TabPool,
    played: PlayedChromium,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    for key in "ab":
        await runner.do(tab_spec(key))
    nursery.start_soon(pool.drop_idle)
    played.call_takes = 0.1
    await trio.sleep(IDLE + 0.05)  # both are on their way out
    job = await runner.begin(tab_spec("b"))
    await trio.sleep(10)
    assert job.page is not None
    assert played.contexts == [job.page.context]
    await finish(job)
    assert await runner.do(tab_spec("b")) is job.page
    nursery.cancel_scope.cancel()
