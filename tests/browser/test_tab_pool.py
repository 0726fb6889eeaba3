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
from smartlinkd.browser.tab_pool import (
    DISPOSE_PATIENCE,
    OPEN_PATIENCE,
    STARTS_AT_ONCE,
    Contexts,
    Place,
)
from tests.browser.errands import IDLE, LIMIT, Desk, cancel, finish, open_tab, place

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium


async def test_a_tab_is_opened_once_and_used_again(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first, second = await desk.do(place()), await desk.do(place())
    assert first is second
    assert first.opened == 1
    assert first.context.cookies == [{"name": "n", "value": "a"}]


async def test_cookies_are_laid_out_once_for_each_context(
    desk: Desk, autojump_clock: MockClock
) -> None:
    laid_out: list[str] = []

    def where(tab: str) -> Place:
        def cookies() -> list[dict[str, object]]:
            laid_out.append(tab)
            return []

        return replace(place(tab=tab), cookies=cookies)

    pages = [await desk.do(where(tab)) for tab in ("links", "products", "links")]
    assert laid_out == ["links"]
    job = await desk.begin(where("links"))
    await finish(job, SessionGone("it crashed"))
    assert await desk.do(where("products")) not in pages
    assert laid_out == ["links", "products"]


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
    await wait_all_tasks_blocked()
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


async def test_a_tab_whose_opening_is_given_up_does_not_go_on_while_its_context_does(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    async def for_ever(_: object) -> None:
        await trio.sleep_forever()

    reading = await desk.begin(place(tab="products"))
    given_up = await desk.begin(place(open_tab=for_ever))
    assert len(played.pages) == 2
    await cancel(given_up)
    assert played.pages == [reading.page]
    await finish(reading)
    assert (played.contexts, played.pages) == ([], [])


async def test_a_context_spoiled_while_a_tab_waits_to_be_made_gets_none(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    opened: list[Any] = []

    async def noting(page: Any) -> None:
        opened.append(page)
        await open_tab(page)

    failing = await desk.begin(place(tab="products"))
    played.call_takes = 5
    starting = [await desk.begin(place(key)) for key in "bc"]
    assert played.being_made == STARTS_AT_ONCE
    waiting = await desk.begin(place(open_tab=noting))
    await finish(failing, SessionGone("no"))
    for job in (*starting, waiting):
        await finish(job)
    assert opened == [waiting.page]


async def test_a_context_spoiled_while_a_tab_opens_takes_no_work_on_it(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    loaded = trio.Event()

    async def slowly(page: object) -> None:
        await loaded.wait()
        await open_tab(page)

    failing = await desk.begin(place(tab="products"))
    opening = await desk.begin(place(open_tab=slowly))
    await finish(failing, SessionGone("no"))
    assert failing.page is not None
    loaded.set()
    await finish(opening)
    assert opening.page is not None
    assert opening.page.context is not failing.page.context
    assert played.pages == [opening.page]


async def test_a_tab_that_is_not_closed_holds_up_who_comes_next_but_not_for_long(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await desk.begin(place(tab="products"))
    given_up = await desk.begin(place())
    played.hoards = True
    began = trio.current_time()
    await cancel(given_up)
    assert trio.current_time() == began
    another = await desk.do(place("another"))
    assert trio.current_time() == began
    next_one = await desk.do(place())
    assert trio.current_time() - began == DISPOSE_PATIENCE
    played.hoards = False
    await finish(reading)
    assert played.contexts == [another.context, next_one.context]


async def test_what_work_has_found_is_known_before_its_context_is_disposed_of(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    """Who leaves in that time would take a human check with him."""
    job = await desk.begin(place())
    played.hoards = True
    began = trio.current_time()
    await finish(job, SessionGone("a check"))
    assert trio.current_time() == began
    assert len(played.contexts) == 1


async def test_nothing_is_kept_of_a_cookie_whose_context_was_cleared_away(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    """There may be as many as there are requests."""
    job = await desk.begin(place())
    played.call_takes = 1
    job.fails = SessionGone("it crashed")
    job.end.set()
    await job.done.wait()
    assert list(contexts._clearing) == [place().key]
    await trio.sleep(1)
    await wait_all_tasks_blocked()
    assert played.contexts == []
    assert (len(contexts), contexts._clearing) == (0, {})


async def test_who_leaves_after_the_browser_has_nothing_to_clear_away(
    played: PlayedChromium, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as browsers:
        contexts = Contexts(cast("Any", played), browsers, limit=LIMIT, idle=IDLE)
        job = await Desk(contexts, nursery).begin(place())
        browsers.cancel_scope.cancel()
    await finish(job, SessionGone("it ended"))
    assert len(contexts) == 0


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


async def test_for_who_waited_for_a_context_that_was_not_made_one_is_made(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    played.call_takes = 1
    making = await desk.begin(place(tab="links"))
    waiting = await desk.begin(place(tab="products"))
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
    waiting = await desk.begin(place("waits for its turn"))
    played.call_takes = 0  # what would be disposed of is gone at once
    await cancel(waiting)
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
        await trio.sleep(3)
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
    assert trio.current_time() == began
    with trio.fail_after(DISPOSE_PATIENCE + 0.1):
        assert await contexts.wait_spent() == "it did not dispose of a context"


async def test_a_browser_that_opens_no_more_tabs_is_told(
    contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    accounts = count()

    async def nothing(_: object) -> None:
        pass

    async def use_anew(*, opens: bool) -> None:
        played.opens = opens
        with nullcontext() if opens else pytest.raises(CallTimedOut):
            await contexts.use(place(str(next(accounts))), nothing)

    for opens in (False, True, False):  # one by itself says nothing
        await use_anew(opens=opens)
    with trio.move_on_after(100) as scope:
        await contexts.wait_spent()
    assert scope.cancelled_caught
    with trio.move_on_after(OPEN_PATIENCE):  # who had no more time than that
        await use_anew(opens=False)
    with trio.fail_after(1):
        assert await contexts.wait_spent() == "it opened no more tabs"


async def test_the_end_of_the_browser_is_no_context_left_behind(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await desk.begin(place())
    played.exit()
    await finish(job, Disconnected("gone"))
    with trio.move_on_after(100) as scope:
        await contexts.wait_spent()
    assert scope.cancelled_caught
