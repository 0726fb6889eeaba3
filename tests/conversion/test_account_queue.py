"""One account's queue: submits merged and one at a time, and who may leave when."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account_queue import AccountQueue
from smartlinkd.errors import Unavailable, UpstreamFailed
from smartlinkd.marketplace.answers import Row
from smartlinkd.vault.cookie import Cookie
from tests.conversion.conftest import COOKIE, MIN_SUBMIT_S, RENEWED, enqueue, make_queue, waiting

if TYPE_CHECKING:
    from smartlinkd.conversion.sources import MaySend
    from tests.conversion.conftest import Ask, Bench, FakeLinks

Take = Callable[..., Any]


@pytest.fixture
def take(queue: AccountQueue, ask: Ask[Any]) -> Take:
    """Enqueue a link at once, and wait for its row in the background."""

    def start(number: int, sub_ids: tuple[str, ...] = (), cookie: Cookie | None = COOKIE) -> Any:
        return ask(waiting(queue, number, cookie, sub_ids=sub_ids))

    return start


# Merging


async def test_the_first_one_is_submitted_at_once(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    assert links.submitted == [{1}]
    assert links.times == [0]


async def test_the_first_one_does_not_wait_for_a_second(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    take(2)
    await trio.sleep(5)
    assert links.submitted == [{1}, {2}]


async def test_those_who_ask_at_the_same_moment_go_together(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    for number in (1, 2, 3):
        take(number)
    await trio.sleep(5)
    assert links.submitted == [{1, 2, 3}]


async def test_those_who_wait_are_merged_up_to_the_chunk(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    asked = [take(number) for number in range(2, 9)]
    await trio.sleep(10)
    assert links.submitted == [{1}, {2, 3, 4}, {5, 6, 7}, {8}]
    assert links.times == [0, 1, 2, 3]
    assert [one.at for one in asked] == [2, 2, 2, 3, 3, 3, 4]


async def test_each_gets_its_own_row(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    rows = [Row(f"https://s.shopee.vn/{n}", None, 0) for n in range(3)]  # type: ignore[arg-type]
    links.script = [rows]
    asked = [take(number) for number in (1, 2, 3)]
    await trio.sleep(5)
    order = [product.item_id for product in links.submits[0].products]
    assert {n: asked[n - 1].answer for n in order} == dict(zip(order, rows, strict=True))


async def test_other_sub_ids_make_another_submit_and_keep_their_turn(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    for number, sub_ids in [(2, ("a",)), (3, ("b",)), (4, ("a",)), (5, ("b",))]:
        take(number, sub_ids)
        await wait_all_tasks_blocked()
    await trio.sleep(5)
    assert links.submitted == [{1}, {2, 4}, {3, 5}]
    assert [submit.sub_ids for submit in links.submits] == [(), ("a",), ("b",)]


async def test_who_waited_longest_goes_first_although_a_larger_submit_could_be_made(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    take(2, ("lonely",))
    await wait_all_tasks_blocked()
    for number in (3, 4, 5):
        take(number)
    await trio.sleep(5)
    assert links.submitted == [{1}, {2}, {3, 4, 5}]


async def test_another_cookie_of_the_account_makes_another_submit(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    take(2, cookie=RENEWED)
    take(3)
    await trio.sleep(5)
    assert [(submit.cookie, submit.items) for submit in links.submits] == [
        (COOKIE, {1}),
        (RENEWED, {2}),
        (COOKIE, {3}),
    ]


async def test_never_two_submits_at_a_time_whatever_the_cookie_and_the_sub_ids(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    for number in range(1, 4):
        for sub_ids in [(), ("a",), ("b",)]:
            for cookie in (COOKIE, RENEWED):
                take(number, sub_ids, cookie)
                await wait_all_tasks_blocked()
    await trio.sleep(20)
    assert sum(len(items) for items in links.submitted) == 18
    assert links.most_at_work == {"1001": 1}


async def test_queue_starts_again_after_it_was_empty(
    take: Take, queue: AccountQueue, links: FakeLinks, autojump_clock: MockClock
) -> None:
    busy = [queue.is_busy]
    for number in (1, 2):
        take(number)
        busy.append(queue.is_busy)
        await trio.sleep(5)
        busy.append(queue.is_busy)
    assert busy == [False, True, False, True, False]
    assert links.times == [0, 5]


async def test_links_of_nobodys_session_are_merged_too(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    for number in (1, 2):
        take(number, cookie=None)
    await trio.sleep(5)
    assert [(submit.cookie, submit.items) for submit in links.submits] == [(None, {1, 2})]


async def test_pending_link_knows_whether_its_submit_has_begun(
    take: Take, queue: AccountQueue, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    pending = enqueue(queue, 2)
    ask(partial(queue.wait_for_row, pending))
    submitted = []
    for _ in range(3):
        submitted.append(pending.is_submitted)
        await trio.sleep(0.9)
    assert submitted == [False, False, True]


async def test_a_failed_submit_does_not_stop_the_queue(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [failure := UpstreamFailed("no")]
    first = take(1)
    await wait_all_tasks_blocked()
    second = take(2)
    await trio.sleep(5)
    assert first.refusal is failure
    assert second.at == 2


async def test_how_many_submits_wait(
    take: Take, queue: AccountQueue, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    assert queue.count_waiting_submits() == 0
    for number in range(2, 6):
        take(number)
    take(9, ("a",))
    take(9, cookie=RENEWED)
    assert queue.count_waiting_submits() == 4
    await trio.sleep(10)
    assert queue.count_waiting_submits() == 0


# The same link


@pytest.mark.parametrize("under_way", [True, False], ids=["being submitted", "waiting"])
async def test_same_link_is_submitted_once_and_both_get_the_row(
    take: Take, queue: AccountQueue, links: FakeLinks, autojump_clock: MockClock, under_way: bool
) -> None:
    if not under_way:
        take(9)
        await wait_all_tasks_blocked()
    first = take(1)
    await wait_all_tasks_blocked()
    second = take(1)
    await trio.sleep(5)
    assert first.answer is second.answer
    assert [items for items in links.submitted if 1 in items] == [{1}]


async def test_the_same_link_with_other_sub_ids_or_another_cookie_is_another_one(
    queue: AccountQueue, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        pending_links = [
            enqueue(queue, 1),
            enqueue(queue, 1, sub_ids=("a",)),
            enqueue(queue, 1, RENEWED),
        ]
        for pending in pending_links:
            nursery.start_soon(queue.wait_for_row, pending)
    assert len({pending.key for pending in pending_links}) == 3


async def test_link_that_was_served_is_submitted_again(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await trio.sleep(5)
    take(1)
    await trio.sleep(5)
    assert links.times == [0, 5]


# Leaving


async def test_who_leaves_while_waiting_is_not_submitted(
    take: Take, queue: AccountQueue, links: FakeLinks, autojump_clock: MockClock
) -> None:
    take(1)
    await wait_all_tasks_blocked()
    gone, stays = take(2), take(3)
    await wait_all_tasks_blocked()
    gone.leave()
    await wait_all_tasks_blocked()
    assert queue.count_waiting_submits() == 1
    await trio.sleep(5)
    assert links.submitted == [{1}, {3}]
    assert stays.at == 2


@pytest.mark.parametrize("under_way", [True, False], ids=["being submitted", "waiting"])
async def test_one_of_two_holders_leaves_and_the_other_gets_the_row(
    take: Take, links: FakeLinks, autojump_clock: MockClock, under_way: bool
) -> None:
    if not under_way:
        take(9)
        await wait_all_tasks_blocked()
    gone, stays = take(1), take(1)
    await wait_all_tasks_blocked()
    gone.leave()
    await trio.sleep(5)
    assert stays.answer.short_link is not None
    assert [items for items in links.submitted if 1 in items] == [{1}]
    assert links.cut == []


async def test_a_submit_goes_on_while_anybody_waits_for_one_of_its_links(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    gone, stays = take(1), take(2)
    await wait_all_tasks_blocked()
    gone.leave()
    await trio.sleep(5)
    assert links.cut == []
    assert stays.at == 1


async def test_a_submit_for_which_nobody_waits_is_cancelled_and_the_next_one_comes(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.script = [inf]
    leaving = [take(1), take(2), take(2)]
    await wait_all_tasks_blocked()
    stays = take(3)
    await trio.sleep(7)
    for one in leaving:
        one.leave()
    await stays.over.wait()
    assert [submit.items for submit in links.cut] == [{1, 2}]
    assert stays.at == 8


async def test_a_cancelled_submit_has_ended_before_the_next_one_begins(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.tidying = 3.0
    leaves = take(1)
    await trio.sleep(0.5)
    leaves.leave()
    await leaves.over.wait()
    take(2)
    await trio.sleep(20)
    assert links.times == [0, 3.5]
    assert links.most_at_work == {"1001": 1}


async def test_a_newcomer_gets_no_enqueue_a_cancelled_submit(
    take: Take, links: FakeLinks, autojump_clock: MockClock
) -> None:
    links.tidying = 3.0
    leaves = take(1)
    await trio.sleep(0.5)
    leaves.leave()
    await leaves.over.wait()
    asked = take(1)
    await trio.sleep(20)
    assert asked.at == 4.5
    assert links.submitted == [{1}, {1}]


async def test_row_of_a_cancelled_submit_is_not_given_to_a_newer_link(
    nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    begun: list[float] = []

    async def finish_anyway(
        cookie: Cookie | None, products: Any, sub_ids: tuple[str, ...], may_send: MaySend
    ) -> list[Row]:
        begun.append(trio.current_time())
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return [Row(f"https://s.shopee.vn/{len(begun)}", None, 0)] * len(products)  # type: ignore[arg-type]

    queue = make_queue(finish_anyway, nursery)
    first = ask(waiting(queue, 1))
    await trio.sleep(0.5)
    first.leave()
    await first.over.wait()
    second = ask(waiting(queue, 1))
    await trio.sleep(1)  # the abandoned submit has its rows, the second one is under way
    third = ask(waiting(queue, 1))
    await trio.sleep(5)
    assert begun == [0, 1]
    assert second.answer is third.answer


# Deadlines


PATIENCE = 10.0


async def wait_for(queue: AccountQueue, number: int, *, seconds: float) -> None:
    """Wait for a link's row, for so many seconds."""
    until = trio.current_time() + seconds
    with trio.move_on_at(until):
        await queue.wait_for_row(enqueue(queue, number, deadline=until))


async def test_nothing_is_submitted_for_who_will_be_gone(
    queue: AccountQueue, links: FakeLinks, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    for number, seconds in ((1, MIN_SUBMIT_S / 2), (2, MIN_SUBMIT_S), (3, 5.0)):
        nursery.start_soon(partial(wait_for, queue, number, seconds=seconds))
    await trio.sleep(10)
    assert links.submitted == [{2, 3}]


async def test_a_link_is_submitted_when_somebody_comes_who_has_time_for_it(
    queue: AccountQueue, links: FakeLinks, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    nursery.start_soon(partial(wait_for, queue, 1, seconds=MIN_SUBMIT_S / 2))
    await wait_all_tasks_blocked()
    assert links.submitted == []
    await wait_for(queue, 1, seconds=5.0)
    assert links.submitted == [{1}]


async def test_of_a_burst_only_those_whose_turn_came_hear_of_the_marketplace(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    await bench.open(nursery, timeout_s=PATIENCE, chunk=1)
    bench.links.script = [bench.silent] * 5
    asked = []
    for number in range(1, 6):
        asked.append(ask(partial(bench.convert, bench.link(number))))
        await trio.sleep(0.01)
    await trio.sleep(2 * PATIENCE)
    assert [type(one.refusal) for one in asked] == [UpstreamFailed] + [Unavailable] * 4
    assert len(bench.links.submitted) == 1


async def test_whose_submit_waited_for_the_browser_all_the_time_has_waited_too(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Nothing was sent, so there is nothing that the marketplace did not answer."""
    await bench.open(nursery, timeout_s=PATIENCE)
    bench.links.opening = 2 * PATIENCE
    with pytest.raises(Unavailable) as refused:
        await bench.convert(bench.link(1))
    assert refused.value.retry_after > 0
    assert bench.links.submitted == []


async def test_a_link_of_somebody_who_has_time_is_not_passed_over_for_one_who_has_not(
    queue: AccountQueue, links: FakeLinks, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    links.script = [2.0]
    nursery.start_soon(partial(wait_for, queue, 1, seconds=5.0))
    await wait_all_tasks_blocked()
    # The same link: who comes second is the first to go, as one whose short link was slow.
    nursery.start_soon(partial(wait_for, queue, 2, seconds=5.0))
    await wait_all_tasks_blocked()
    nursery.start_soon(partial(wait_for, queue, 2, seconds=2.0 + MIN_SUBMIT_S / 2))
    await trio.sleep(10)
    assert links.submitted == [{1}, {2}]
