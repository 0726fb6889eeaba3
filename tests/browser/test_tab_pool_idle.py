"""Warm contexts that nobody uses: which are kept, how long, and what became of them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.browser.tab_pool import (
    SIGN_DEADLINE,
    TRUSTED_FOR,
    Contexts,
)
from tests.browser.errands import IDLE, LIMIT, Desk, Job, cancel, finish, open_tab, place

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium


async def test_a_tab_that_crashed_while_nobody_used_it_costs_nobody_anything(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    first = await desk.do(place())
    first.gone = True
    second = await desk.do(place())
    assert second is not first
    assert second.opened == 1
    assert played.contexts == [second.context]


CHECK = "https://portal.test/verify"


def spoils(url: str, beside: bool) -> bool:
    return url == CHECK and not beside


async def test_what_a_tab_shows_while_nobody_uses_it_may_end_its_context(
    desk: Desk, contexts: Contexts, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    where = place(spoils=spoils)
    page = await desk.do(where)
    page.show("https://portal.test/", False)
    page.show(CHECK, True)
    assert await desk.do(where) is page
    page.show(CHECK, False)
    page.show(CHECK, False)
    assert len(contexts) == 0
    await wait_all_tasks_blocked()
    assert played.contexts == []
    assert await desk.do(where) is not page


async def test_who_works_meanwhile_ends_that_work_and_nobody_else_begins(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    job = await desk.begin(place(spoils=spoils))
    behind = await desk.begin(place(spoils=spoils))
    assert job.page is not None
    job.page.show(CHECK, False)
    await wait_all_tasks_blocked()
    assert job.page in played.pages
    await finish(job)
    assert job.page not in played.pages
    assert behind.page not in (None, job.page)
    await finish(behind)


async def test_a_tab_that_was_led_elsewhere_is_opened_again_and_no_other_one(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    reading = await desk.begin(place(tab="products"))
    page = await desk.do(place())
    page.documents += 1
    assert await desk.do(place()) is page
    assert page.opened == 2
    assert await desk.do(place()) is page
    assert page.opened == 2
    await finish(reading)
    assert await desk.do(place(tab="products")) is reading.page
    assert reading.page is not None
    assert reading.page.opened == 1
    assert played.contexts == [page.context]


async def test_one_that_was_led_elsewhere_is_not_asked_whether_it_is_well(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    """It may be busy there, and whoever opens it is to see where it is."""
    page = await desk.do(place())
    page.documents += 1
    page.loops = True
    await trio.sleep(TRUSTED_FOR)
    seen: list[object] = []

    async def see(page: object) -> None:
        seen.append(page)

    assert await desk.do(place(open_tab=see)) is page
    assert seen == [page]
    assert played.contexts == [page.context]


async def test_a_tab_whose_work_takes_it_elsewhere_is_opened_once(
    desk: Desk, autojump_clock: MockClock
) -> None:
    page = await desk.do(place(elsewhere=True))
    page.documents += 1
    assert await desk.do(place(elsewhere=True)) is page
    assert page.opened == 1


async def test_a_tab_that_cannot_be_opened_again_is_not_kept(
    desk: Desk, played: PlayedChromium, autojump_clock: MockClock
) -> None:
    fails = False

    async def open_or_fail(page: Any) -> None:
        await open_tab(page)
        if fails:
            raise NavigationFailed("https://portal.test/", "net::ERR_FAILED")

    where = place(open_tab=open_or_fail)
    page = await desk.do(where)
    page.documents += 1
    fails = True
    job = Job(desk.contexts, where)
    await job.run()
    assert isinstance(job.error, NavigationFailed)
    await wait_all_tasks_blocked()
    assert played.contexts == []
    fails = False
    assert await desk.do(where) is not page


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


async def test_a_tab_that_has_just_been_opened_is_not_asked_by_who_shares_it(
    desk: Desk, autojump_clock: MockClock
) -> None:
    """It may be busy with the work that it was opened for."""
    await trio.sleep(TRUSTED_FOR)
    first = await desk.begin(place(at_once=2))
    assert first.page is not None
    asked = first.page.asked
    second = await desk.begin(place(at_once=2))
    assert second.page is first.page
    assert first.page.asked == asked
    for job in (first, second):
        await finish(job)


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
