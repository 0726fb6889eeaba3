"""Warm contexts on a browser that is played: who gets which tab, and what is thrown away."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.errors import CallTimedOut, Disconnected, SessionGone
from smartlinkd.browser.tab_pool import TabPool, TabSpec
from tests.browser.jobs import (
    IDLE,
    LIMITS,
    POOL_SIZE,
    JobRunner,
    cancel,
    finish,
    open_tab,
    tab_spec,
)

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium


async def test_a_tab_is_opened_once_and_used_again(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first, second = await runner.do(tab_spec()), await runner.do(tab_spec())
    assert first is second
    assert first.opened == 1
    assert first.context.cookies == [{"name": "n", "value": "a"}]


async def test_cookies_are_laid_out_once_for_each_context(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    laid_out: list[str] = []

    def where(tab: str) -> TabSpec:
        def cookies() -> list[dict[str, object]]:
            laid_out.append(tab)
            return []

        return replace(tab_spec(tab=tab), cookies=cookies)

    pages = [await runner.do(where(tab)) for tab in ("links", "products", "links")]
    assert laid_out == ["links"]
    job = await runner.begin(where("links"))
    await finish(job, SessionGone("it crashed"))
    assert await runner.do(where("products")) not in pages
    assert laid_out == ["links", "products"]


async def test_the_work_s_value_is_returned(pool: TabPool, autojump_clock: MockClock) -> None:
    async def work(_: object) -> str:
        return "value"

    assert await pool.use(tab_spec(), work) == "value"


async def test_tabs_of_a_key_share_its_context_and_are_two(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    links, products = (
        await runner.do(tab_spec(tab="links")),
        await runner.do(tab_spec(tab="products")),
    )
    assert links is not products
    assert links.context is products.context


async def test_two_keys_share_nothing_also_at_the_same_time(
    runner: JobRunner, autojump_clock: MockClock
) -> None:
    jobs = [await runner.begin(tab_spec(key)) for key in "ab"]
    one, other = (job.page for job in jobs)
    assert one is not None
    assert other is not None
    assert one.context is not other.context
    assert [page.context.cookies[0]["value"] for page in (one, other)] == ["a", "b"]
    for job in jobs:
        await finish(job)


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_so_many_use_a_tab_at_once_and_the_rest_wait(
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


async def test_error_of_a_job_invalidates_the_whole_context(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    other_tab = await runner.do(tab_spec(tab="products"))
    job = await runner.begin(tab_spec())
    await finish(job, SessionGone("it crashed"))
    assert (played.contexts, played.pages) == ([], [])
    assert await runner.do(tab_spec(tab="products")) is not other_tab


async def test_cancelled_job_invalidates_its_context(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await runner.begin(tab_spec())
    await cancel(job)
    assert (played.contexts, played.pages) == ([], [])
    assert await runner.do(tab_spec()) is not job.page


async def test_a_tab_that_does_not_open_is_not_kept(
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


async def test_work_that_is_given_up_does_not_go_on_while_its_context_does(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await runner.begin(tab_spec(tab="products"))
    given_up = await runner.begin(tab_spec())
    await cancel(given_up)
    assert played.pages == [reading.page]
    await finish(reading)
    assert (played.contexts, played.pages) == ([], [])


async def test_a_tab_whose_opening_is_given_up_does_not_go_on_while_its_context_does(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    async def for_ever(_: object) -> None:
        await trio.sleep_forever()

    reading = await runner.begin(tab_spec(tab="products"))
    given_up = await runner.begin(tab_spec(open_tab=for_ever))
    assert len(played.pages) == 2
    await cancel(given_up)
    assert played.pages == [reading.page]
    await finish(reading)
    assert (played.contexts, played.pages) == ([], [])


async def test_context_invalidated_while_a_tab_waits_to_be_opened_gets_none(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    opened: list[Any] = []

    async def noting(page: Any) -> None:
        opened.append(page)
        await open_tab(page)

    failing = await runner.begin(tab_spec(tab="products"))
    played.call_takes = 5
    starting = [await runner.begin(tab_spec(key)) for key in "bc"]
    assert played.being_made == LIMITS.concurrent_starts
    waiting = await runner.begin(tab_spec(open_tab=noting))
    await finish(failing, SessionGone("no"))
    for job in (*starting, waiting):
        await finish(job)
    assert opened == [waiting.page]


async def test_context_invalidated_while_a_tab_opens_takes_no_job_on_it(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    loaded = trio.Event()

    async def slowly(page: object) -> None:
        await loaded.wait()
        await open_tab(page)

    failing = await runner.begin(tab_spec(tab="products"))
    opening = await runner.begin(tab_spec(open_tab=slowly))
    await finish(failing, SessionGone("no"))
    assert failing.page is not None
    loaded.set()
    await finish(opening)
    assert opening.page is not None
    assert opening.page.context is not failing.page.context
    assert played.pages == [opening.page]


async def test_a_tab_that_is_not_closed_holds_up_who_comes_next_but_not_for_long(
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


async def test_what_work_has_found_is_known_before_its_context_is_disposed_of(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    """Who leaves in that time would take a human check with him."""
    job = await runner.begin(tab_spec())
    played.hoards = True
    began = trio.current_time()
    await finish(job, SessionGone("a check"))
    assert trio.current_time() == began
    assert len(played.contexts) == 1


async def test_nothing_is_kept_of_a_cookie_whose_context_was_cleared_away(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    """There may be as many as there are requests."""
    job = await runner.begin(tab_spec())
    played.call_takes = 1
    job.fails = SessionGone("it crashed")
    job.end.set()
    await job.done.wait()
    assert list(pool._cleanups) == [tab_spec().key]
    await trio.sleep(1)
    await wait_all_tasks_blocked()
    assert played.contexts == []
    assert (len(pool), pool._cleanups) == (0, {})


async def test_who_leaves_after_the_browser_has_nothing_to_clear_away(
    played: PlayedChromium, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as browsers:
        pool = TabPool(cast("Any", played), browsers, size=POOL_SIZE, idle_s=IDLE, limits=LIMITS)
        job = await JobRunner(pool, nursery).begin(tab_spec())
        browsers.cancel_scope.cancel()
    await finish(job, SessionGone("it ended"))
    assert len(pool) == 0


async def test_the_end_of_the_browser_is_that_of_a_tab_that_was_given_up(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await runner.begin(tab_spec(tab="products"))
    given_up = await runner.begin(tab_spec())
    played.exit()
    await cancel(given_up)
    await finish(reading, Disconnected("gone"))
    assert isinstance(reading.error, Disconnected)


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


async def test_for_who_waited_for_a_context_that_was_not_made_one_is_made(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    making = await runner.begin(tab_spec(tab="links"))
    waiting = await runner.begin(tab_spec(tab="products"))
    await cancel(making)
    began = trio.current_time()
    await finish(waiting)
    # Two calls for a context, two for its tab, and one to open it.
    assert trio.current_time() - began == 5


class Held:
    """Holds up whoever makes a context or opens a tab, until let go."""

    def __init__(self) -> None:
        self.go = trio.Event()

    async def open_tab(self, page: Any) -> None:
        await self.go.wait()
        page.opened += 1


async def test_cancelled_wait_for_a_tab_invalidates_nothing(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    working = await runner.begin(tab_spec())
    waiting = await runner.begin(tab_spec())
    await cancel(waiting)
    await finish(working)
    assert await runner.do(tab_spec()) is working.page


async def test_cancelled_wait_for_an_opening_tab_invalidates_nothing(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    held = Held()
    opening = await runner.begin(tab_spec(concurrency=2, open_tab=held.open_tab))
    waiting = await runner.begin(tab_spec(concurrency=2, open_tab=held.open_tab))
    await cancel(waiting)
    held.go.set()
    await finish(opening)
    assert await runner.do(tab_spec(concurrency=2)) is opening.page


async def test_cancelled_wait_for_a_new_context_invalidates_nothing(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    making = await runner.begin(tab_spec(tab="links"))
    waiting = await runner.begin(tab_spec(tab="products"))
    assert played.contexts == []
    await cancel(waiting)
    await finish(making)
    played.call_takes = 0
    assert await runner.do(tab_spec(tab="links")) is making.page


async def test_who_leaves_before_a_context_is_made_takes_no_other_one_s_place(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    warm = [(await runner.do(tab_spec(key))).context for key in "ab"]
    assert len(warm) == POOL_SIZE
    played.call_takes = 1
    making = [await runner.begin(tab_spec(key)) for key in "cd"]
    assert len(making) == LIMITS.concurrent_starts
    waiting = await runner.begin(tab_spec("waits for its turn"))
    played.call_takes = 0  # what would be disposed of is gone at once
    await cancel(waiting)
    assert len(pool) == 4
    assert played.contexts[:POOL_SIZE] == warm
    for job in making:
        await finish(job)


async def test_contexts_and_tabs_are_made_a_few_at_a_time(
    runner: JobRunner, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    jobs = [await runner.begin(tab_spec(key)) for key in "abcde"]
    for job in jobs:
        await finish(job)
    assert played.most_being_made == LIMITS.concurrent_starts


@pytest.mark.parametrize("half_seconds", range(14))
async def test_work_that_is_cancelled_at_any_step_leaves_nothing(
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


async def test_browser_that_does_not_dispose_becomes_unusable_and_delays_nobody(
    runner: JobRunner,
    pool: TabPool,
    played: PlayedChromium,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    job = await runner.begin(tab_spec())
    played.hoards = True
    began = trio.current_time()
    await cancel(job)
    assert trio.current_time() == began
    with trio.fail_after(LIMITS.dispose_timeout_s + 0.1):
        assert await pool.wait_unusable() == "it did not dispose of a context"


async def test_browser_that_opens_no_more_tabs_becomes_unusable(
    pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    accounts = count()

    async def nothing(_: object) -> None:
        pass

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


async def test_the_end_of_the_browser_is_no_context_left_behind(
    runner: JobRunner, pool: TabPool, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await runner.begin(tab_spec())
    played.exit()
    await finish(job, Disconnected("gone"))
    with trio.move_on_after(100) as scope:
        await pool.wait_unusable()
    assert scope.cancelled_caught
