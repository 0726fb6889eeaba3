"""Warm contexts that nobody uses: which are kept, how long, and what became of them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.tab_pool import TabPool
from tests.browser.jobs import (
    IDLE,
    LIMITS,
    POOL_SIZE,
    Job,
    JobRunner,
    finish,
    tab_spec,
)

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium


async def test_tab_that_crashed_while_idle_is_replaced(
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


async def test_idle_tab_that_shows_an_invalidating_url_ends_its_context(
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


async def test_busy_tab_that_shows_an_invalidating_url_takes_no_other_job(
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


async def test_tab_that_navigated_while_idle_is_opened_again(
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


async def test_tab_whose_jobs_navigate_is_opened_once(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    page = await runner.do(tab_spec(is_navigated=True))
    page.document_count += 1
    assert await runner.do(tab_spec(is_navigated=True)) is page
    assert page.opened == 1


async def test_tab_that_hangs_while_idle_is_replaced_after_its_probe(
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


async def test_tab_is_probed_only_after_an_idle_time(
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


async def test_pool_over_its_size_drops_the_least_recently_used(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    pages = {}
    for key in ["a", "b", "a", "c"]:
        pages[key] = await runner.do(tab_spec(key))
        await trio.sleep(1)
    assert len(pool) == POOL_SIZE
    assert played.contexts == [pages["a"].context, pages["c"].context]


async def test_idle_contexts_are_dropped_and_used_ones_stay(
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
