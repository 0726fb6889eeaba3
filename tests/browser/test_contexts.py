"""Warm contexts on a browser that is played: who gets which tab, and what is thrown away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from daemon.browser.contexts import (
    DISPOSE_PATIENCE,
    SIGN_DEADLINE,
    STARTS_AT_ONCE,
    TRUSTED_FOR,
    Contexts,
    Place,
)
from daemon.browser.errors import BrowserFailed, Disconnected, SessionGone
from daemon.browser.page import CookieParam

if TYPE_CHECKING:
    from tests.browser.conftest import PlayedChromium, PlayedPage

LIMIT = 2
IDLE = 100.0


async def open_tab(page: Any) -> None:
    await page.evaluate("")
    page.opened += 1


def place(
    key: str = "a",
    tab: str = "links",
    *,
    at_once: int = 1,
    open_tab: Callable[[Any], Awaitable[None]] = open_tab,
) -> Place:
    return Place(key, [CookieParam(name="n", value=key)], tab, open_tab, at_once)


class Job:
    """A piece of work that goes on until it is told how to end, and what became of it."""

    def __init__(self, contexts: Contexts, where: Place) -> None:
        self.page: PlayedPage | None = None
        self.end = trio.Event()
        self.fails: Exception | None = None
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.error: Exception | None = None
        self._contexts = contexts
        self._place = where

    async def run(self) -> None:
        try:
            with self.scope:
                await self._contexts.use(self._place, self._work)
        except BrowserFailed as failure:
            self.error = failure
        self.done.set()

    async def _work(self, page: Any) -> None:
        self.page = page
        await self.end.wait()
        if self.fails is not None:
            raise self.fails


class Desk:
    """Gives out pieces of work."""

    def __init__(self, contexts: Contexts, nursery: trio.Nursery) -> None:
        self.contexts = contexts
        self._nursery = nursery

    async def begin(self, where: Place) -> Job:
        """Returns when all wait: the work has begun, or its turn has not come."""
        job = Job(self.contexts, where)
        self._nursery.start_soon(job.run)
        await wait_all_tasks_blocked()
        return job

    async def do(self, where: Place) -> PlayedPage:
        """Work that ends well."""
        job = await self.begin(where)
        await finish(job)
        assert job.page is not None
        return job.page


async def finish(job: Job, error: Exception | None = None) -> None:
    job.fails = error
    job.end.set()
    await job.done.wait()
    assert job.error is error


async def cancel(job: Job) -> None:
    job.scope.cancel()
    await job.done.wait()


@pytest.fixture
async def contexts(played: PlayedChromium) -> Contexts:
    return Contexts(cast("Any", played), limit=LIMIT, idle=IDLE)


@pytest.fixture
async def desk(contexts: Contexts, nursery: trio.Nursery) -> Desk:
    return Desk(contexts, nursery)


async def test_a_tab_is_opened_once_and_used_again(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first, second = await desk.do(place()), await desk.do(place())
    assert first is second
    assert first.opened == 1
    assert first.context.cookies == [CookieParam(name="n", value="a")]


async def test_the_work_s_value_is_returned(contexts: Contexts, autojump_clock: MockClock) -> None:
    async def work(_: object) -> str:
        return "value"

    assert await contexts.use(place(), work) == "value"


async def test_tabs_of_a_key_share_its_context_and_are_two(
    desk: Desk, autojump_clock: MockClock
) -> None:
    links, products = await desk.do(place(tab="links")), await desk.do(place(tab="products"))
    assert links is not products
    assert links.context is products.context


async def test_two_keys_share_nothing_also_at_the_same_time(
    desk: Desk, autojump_clock: MockClock
) -> None:
    jobs = [await desk.begin(place(key)) for key in "ab"]
    one, other = (job.page for job in jobs)
    assert one is not None
    assert other is not None
    assert one.context is not other.context
    assert [page.context.cookies[0]["value"] for page in (one, other)] == ["a", "b"]
    for job in jobs:
        await finish(job)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_so_many_use_a_tab_at_once_and_the_rest_wait(
    at_once: int, desk: Desk, autojump_clock: MockClock
) -> None:
    jobs = [await desk.begin(place(at_once=at_once)) for _ in range(5)]
    at_work = [job.page for job in jobs if job.page is not None]
    assert len(at_work) == at_once
    assert len(set(at_work)) == 1
    assert at_work[0].opened == 1
    for job in jobs:
        await finish(job)
    assert {job.page for job in jobs} == set(at_work)


async def test_an_error_spoils_the_whole_context(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    other_tab = await desk.do(place(tab="products"))
    job = await desk.begin(place())
    await finish(job, SessionGone("it crashed"))
    assert (played.contexts, played.pages) == ([], [])
    assert await desk.do(place(tab="products")) is not other_tab


async def test_the_cancellation_of_work_spoils_its_context(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await desk.begin(place())
    await cancel(job)
    assert (played.contexts, played.pages) == ([], [])
    assert await desk.do(place()) is not job.page


async def test_a_tab_that_does_not_open_is_not_kept(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    async def fail(_: object) -> None:
        raise SessionGone("no")

    with pytest.raises(SessionGone):
        await contexts.use(place(open_tab=fail), open_tab)
    assert (played.contexts, played.pages) == ([], [])
    assert (await desk.do(place())).opened == 1


async def test_work_on_a_spoiled_context_goes_on_before_it_is_disposed_of(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    failing, going_on = [await desk.begin(place(at_once=2)) for _ in range(2)]
    await finish(failing, SessionGone("no"))
    assert len(played.contexts) == 1
    fresh = await desk.do(place(at_once=2))
    assert fresh is not going_on.page
    assert going_on.page in played.pages
    await finish(going_on)
    assert played.contexts == [fresh.context]


async def test_work_that_is_given_up_does_not_go_on_while_its_context_does(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await desk.begin(place(tab="products"))
    given_up = await desk.begin(place())
    await cancel(given_up)
    assert played.pages == [reading.page]
    await finish(reading)
    assert (played.contexts, played.pages) == ([], [])


async def test_a_tab_that_is_not_closed_holds_nobody_up_for_long(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await desk.begin(place(tab="products"))
    given_up = await desk.begin(place())
    played.hoards = True
    began = trio.current_time()
    await cancel(given_up)
    assert trio.current_time() - began == DISPOSE_PATIENCE
    played.hoards = False
    await finish(reading)
    assert (played.contexts, played.pages) == ([], [])


async def test_the_end_of_the_browser_is_that_of_a_tab_that_was_given_up(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await desk.begin(place(tab="products"))
    given_up = await desk.begin(place())
    played.exit()
    await cancel(given_up)
    await finish(reading, Disconnected("gone"))
    assert isinstance(reading.error, Disconnected)


@pytest.mark.parametrize("tab", ["links", "products"])
async def test_who_waited_does_not_get_what_was_spoiled_meanwhile(
    tab: str, desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    never = trio.Event()

    async def open_slowly(page: Any) -> None:
        await never.wait()

    if tab == "links":  # waits for the work to end
        first = await desk.begin(place())
        second = await desk.begin(place())
    else:  # waits for the tab to be opened
        first = await desk.begin(place(at_once=2, open_tab=open_slowly))
        second = await desk.begin(place(at_once=2))
    first_context = played.contexts[0]
    await cancel(first)
    await wait_all_tasks_blocked()
    assert second.page is not None
    assert second.page.context is not first_context
    await finish(second)
    assert played.contexts == [second.page.context]


async def test_a_tab_that_crashed_while_nobody_used_it_costs_nobody_anything(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first = await desk.do(place())
    first.gone = True
    second = await desk.do(place())
    assert second is not first
    assert second.opened == 1
    assert played.contexts == [second.context]


async def test_a_tab_that_hangs_since_nobody_used_it_costs_a_wait(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first = await desk.do(place())
    first.loops = True
    await trio.sleep(TRUSTED_FOR)
    began = trio.current_time()
    job = Job(desk.contexts, place())
    job.end.set()
    await job.run()
    assert job.page is not first
    assert job.page is not None
    assert played.contexts == [job.page.context]
    assert trio.current_time() - began == SIGN_DEADLINE


async def test_a_tab_is_asked_only_when_it_was_not_used_for_a_while(
    desk: Desk, autojump_clock: MockClock
) -> None:
    page = await desk.do(place())
    asked = page.asked
    await trio.sleep(TRUSTED_FOR * 0.9)
    await desk.do(place())
    await trio.sleep(TRUSTED_FOR * 0.9)
    await desk.do(place())
    assert page.asked == asked
    await trio.sleep(TRUSTED_FOR)
    assert await desk.do(place()) is page
    await desk.do(place())
    assert page.asked == asked + 1


async def test_who_leaves_while_a_tab_is_asked_spoils_nothing(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    page = await desk.do(place())
    await trio.sleep(TRUSTED_FOR)
    played.call_takes = 1
    asking = await desk.begin(place())
    assert asking.page is None
    await cancel(asking)
    assert await desk.do(place()) is page


async def test_work_on_another_tab_goes_on_when_one_hangs(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    hung = await desk.do(place())
    reading = await desk.begin(place(tab="products"))
    hung.loops = True
    await trio.sleep(TRUSTED_FOR)
    with trio.fail_after(SIGN_DEADLINE + 0.1):
        await desk.contexts.use(place(), open_tab)
    assert reading.page in played.pages
    assert hung not in played.pages
    await finish(reading)
    assert len(played.contexts) == 1


class Held:
    """Holds up whoever makes a context or opens a tab, until let go."""

    def __init__(self) -> None:
        self.go = trio.Event()

    async def open_tab(self, page: Any) -> None:
        await self.go.wait()
        page.opened += 1


async def test_who_leaves_while_waiting_for_a_tab_spoils_nothing(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    working = await desk.begin(place())
    waiting = await desk.begin(place())
    await cancel(waiting)
    await finish(working)
    assert await desk.do(place()) is working.page


async def test_who_leaves_while_another_opens_the_tab_spoils_nothing(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    held = Held()
    opening = await desk.begin(place(at_once=2, open_tab=held.open_tab))
    waiting = await desk.begin(place(at_once=2, open_tab=held.open_tab))
    await cancel(waiting)
    held.go.set()
    await finish(opening)
    assert await desk.do(place(at_once=2)) is opening.page


async def test_who_leaves_while_another_makes_the_context_spoils_nothing(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    making = await desk.begin(place(tab="links"))
    waiting = await desk.begin(place(tab="products"))
    assert played.contexts == []
    await cancel(waiting)
    await finish(making)
    played.call_takes = 0
    assert await desk.do(place(tab="links")) is making.page


async def test_who_leaves_before_a_context_is_made_takes_no_other_one_s_place(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    warm = [(await desk.do(place(key))).context for key in "ab"]
    assert len(warm) == LIMIT
    played.call_takes = 1
    making = [await desk.begin(place(key)) for key in "cd"]
    assert len(making) == STARTS_AT_ONCE
    await cancel(await desk.begin(place("waits for its turn")))
    assert len(contexts) == 4
    assert played.contexts[:LIMIT] == warm
    for job in making:
        await finish(job)


async def test_contexts_and_tabs_are_made_a_few_at_a_time(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    jobs = [await desk.begin(place(key)) for key in "abcde"]
    for job in jobs:
        await finish(job)
    assert played.most_being_made == STARTS_AT_ONCE


async def test_of_more_than_the_limit_the_least_recently_used_goes(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    pages = {}
    for key in ["a", "b", "a", "c"]:
        pages[key] = await desk.do(place(key))
        await trio.sleep(1)
    assert len(contexts) == LIMIT
    assert played.contexts == [pages["a"].context, pages["c"].context]


async def test_contexts_in_use_are_not_surplus(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    jobs = [await desk.begin(place(key)) for key in "abcd"]
    assert len(played.contexts) == 4
    for job in jobs:
        await finish(job)
    assert len(played.contexts) == LIMIT


async def test_idle_contexts_go_and_used_ones_stay(
    desk: Desk,
    contexts: Contexts,
    played: PlayedChromium,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    nursery.start_soon(contexts.drop_idle)
    await desk.do(place("idle"))
    job = await desk.begin(place("in use"))
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
    desk: Desk,
    contexts: Contexts,
    played: PlayedChromium,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    for key in "ab":
        await desk.do(place(key))
    nursery.start_soon(contexts.drop_idle)
    played.call_takes = 0.1
    await trio.sleep(IDLE + 0.05)  # both are on their way out
    job = await desk.begin(place("b"))
    await trio.sleep(10)
    assert job.page is not None
    assert played.contexts == [job.page.context]
    await finish(job)
    assert await desk.do(place("b")) is job.page
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("half_seconds", range(14))
async def test_work_that_is_cancelled_at_any_step_leaves_nothing(
    half_seconds: int, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1  # two to make a context, two to make a tab, one to open it

    async def work(_: object) -> None:
        await trio.sleep(1)

    with trio.move_on_after(half_seconds / 2) as scope:
        await contexts.use(place(), work)
    assert scope.cancelled_caught == (half_seconds <= 12)
    if scope.cancelled_caught:
        assert (played.contexts, played.pages) == ([], [])
        played.call_takes = 0
        await contexts.use(place(), work)
    assert len(played.contexts) == len(played.pages) == 1


async def test_a_browser_that_does_not_dispose_holds_nobody_up_and_is_told(
    desk: Desk,
    contexts: Contexts,
    played: PlayedChromium,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    job = await desk.begin(place())
    played.hoards = True
    began = trio.current_time()
    await cancel(job)
    assert trio.current_time() - began == DISPOSE_PATIENCE
    with trio.fail_after(0.1):
        await contexts.wait_left_behind()


async def test_the_end_of_the_browser_is_no_context_left_behind(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await desk.begin(place())
    played.exit()
    await finish(job, Disconnected("gone"))
    with trio.move_on_after(100) as scope:
        await contexts.wait_left_behind()
    assert scope.cancelled_caught
