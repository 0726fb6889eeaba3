"""Nothing is begun for who will be gone before it could end, and who never had a turn hears so."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account_queue import AccountQueue
from smartlinkd.errors import Unavailable, UpstreamFailed
from tests.conversion.conftest import MIN_SUBMIT_S, enqueue

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench, FakeLinks

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
