"""What the desk tells a scrape: how long links wait and all else takes, and what came of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.order import Order
from smartlinkd.errors import BrowserEnded, Refused, UpstreamFailed
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.metrics import histogram, timed
from tests.fakes.scrape import counted, observed

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Bench, NewBench

SUBMIT = 4.0
READ = 0.5
PATIENCE = 10.0


@pytest.fixture
def bench(new_bench: NewBench) -> Bench:
    made = new_bench()
    made.links.seconds = SUBMIT
    assert made.products is not None
    made.products.seconds = READ
    return made


async def convert(bench: Bench, *numbers: int) -> None:
    await bench.convert(*(bench.link(number) for number in numbers))


async def test_a_submit_and_what_follows_are_timed(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = await bench.open(nursery)
    await convert(bench, 1)
    assert observed(desk.timings.wait) == {"done": (1, 0)}
    assert observed(desk.timings.submit) == {"done": (1, SUBMIT)}
    assert observed(desk.timings.products) == {"done": (1, READ)}
    nursery.cancel_scope.cancel()


async def test_each_link_s_wait_for_its_submit_is_timed(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = await bench.open(nursery, chunk=2)
    await convert(bench, 1, 2, 3)
    assert observed(desk.timings.wait) == {"done": (3, SUBMIT)}  # the third, for the other two's
    assert observed(desk.timings.submit) == {"done": (2, 2 * SUBMIT)}
    nursery.cancel_scope.cancel()


async def test_the_wait_of_a_link_that_never_had_a_submit_is_timed(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    """Its time was up, or its client has gone: in a queue that stands these are all there are."""
    bench.links.seconds = bench.silent
    desk = await bench.open(nursery, chunk=1, patience=PATIENCE)
    ask(partial(convert, bench, 1))
    await wait_all_tasks_blocked()
    late, gone = (ask(partial(convert, bench, number)) for number in (2, 3))
    await trio.sleep(SUBMIT)
    gone.leave()
    await late.over.wait()
    assert observed(desk.timings.wait) == {"done": (1, 0), "left": (2, SUBMIT + PATIENCE)}
    nursery.cancel_scope.cancel()


async def test_the_wait_of_a_link_that_is_refused_in_the_line_is_timed(
    bench: Bench, nursery: trio.Nursery, ask: Ask[Any], autojump_clock: MockClock
) -> None:
    bench.links.script = [HumanCheck()]
    desk = await bench.open(nursery, chunk=1)
    asked = [ask(partial(convert, bench, number)) for number in (1, 2)]
    for one in asked:
        await one.over.wait()
    assert len(bench.links.submitted) == 1
    assert observed(desk.timings.wait) == {"done": (1, 0), "HumanCheck": (1, SUBMIT)}
    nursery.cancel_scope.cancel()


async def test_what_is_refused_is_told_by_its_kind(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench.links.script = [UpstreamFailed("no")]
    assert bench.products is not None
    bench.products.script[2] = UpstreamFailed("no")
    desk = await bench.open(nursery)
    with pytest.raises(UpstreamFailed):
        await convert(bench, 1)
    await convert(bench, 2)
    assert observed(desk.timings.submit) == {
        "UpstreamFailed": (1, SUBMIT),
        "done": (1, SUBMIT),
    }
    assert observed(desk.timings.products) == {"UpstreamFailed": (1, READ)}
    nursery.cancel_scope.cancel()


async def test_links_are_counted_by_what_came_of_them(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = await bench.open(nursery)
    await bench.convert(bench.link(1), "https://example.org/")
    await bench.convert(bench.link(1))
    assert counted(desk.answered) == {"0": 2, "10": 1}
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("refusal", "code"),
    [(HumanCheck(), "40300"), (SessionLost(), "40300"), (UpstreamFailed("no"), "-1")],
    ids=lambda value: type(value).__name__ if isinstance(value, Refused) else value,
)
async def test_the_links_of_an_order_that_is_refused_are_counted(
    bench: Bench,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    refusal: Refused,
    code: str,
) -> None:
    """By the code that they would have had beside one that was made."""
    bench.links.script = [refusal]
    desk = await bench.open(nursery)
    with pytest.raises(type(refusal)):
        await convert(bench, 1, 2)
    assert counted(desk.answered) == {code: 2}
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("whole_or_again", "counts"), [(False, {"-1": 2}), (True, {})])
async def test_the_links_of_an_order_that_is_asked_again_are_counted_with_its_last_answer(
    bench: Bench,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    whole_or_again: bool,
    counts: dict[str, float],
) -> None:
    bench.links.script = [BrowserEnded("killed")]
    desk = await bench.open(nursery)
    order = Order((bench.link(1), bench.link(2)), (), bench.cookie, whole_or_again)
    with pytest.raises(BrowserEnded):
        await desk.convert(order)
    assert counted(desk.answered) == counts
    nursery.cancel_scope.cancel()


async def test_a_submit_that_nobody_waits_for_any_more_is_told_as_left(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = await bench.open(nursery)
    with trio.move_on_after(SUBMIT / 2):
        await convert(bench, 1)
    await trio.sleep(0.1)
    assert bench.links.cut
    assert observed(desk.timings.submit) == {"left": (1, SUBMIT / 2)}
    nursery.cancel_scope.cancel()


async def test_a_portal_that_is_silent_for_longer_than_the_desk_waits_is_seen(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Each submit ends by the desk's own deadline, so it would else be seen nowhere."""
    bench.links.seconds = bench.silent
    desk = await bench.open(nursery, patience=PATIENCE)
    for number in (1, 2):
        with pytest.raises(UpstreamFailed):
            await convert(bench, number)
    await wait_all_tasks_blocked()  # until the last one's submit has heard of it
    assert observed(desk.timings.submit) == {"left": (2, 2 * PATIENCE)}
    nursery.cancel_scope.cancel()


async def test_what_was_left_by_several_tasks_together_is_told_as_left(
    autojump_clock: MockClock,
) -> None:
    """As the Open API's calls are, of which a submit makes one for each link."""
    seconds = histogram("submit", "A submit", "outcome")
    with trio.move_on_after(SUBMIT), timed(seconds):
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(trio.sleep_forever)
    assert observed(seconds) == {"left": (1, SUBMIT)}


async def test_they_are_those_of_all_incarnations(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = bench.make()
    for number in (1, 2):
        async with trio.open_nursery() as life:
            await life.start(desk.run)
            await convert(bench, number)
            life.cancel_scope.cancel()
    assert observed(desk.timings.submit) == {"done": (2, 2 * SUBMIT)}
