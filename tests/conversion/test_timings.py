"""What the desk tells a scrape: how long links wait and all else takes, and what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock

from daemon.errors import UpstreamFailed
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.conversion.conftest import Bench, NewBench

SUBMIT = 4.0
READ = 0.5


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
    assert observed(desk.timings.wait) == {"": (1, 0)}
    assert observed(desk.timings.submit) == {"done": (1, SUBMIT)}
    assert observed(desk.timings.products) == {"done": (1, READ)}
    nursery.cancel_scope.cancel()


async def test_each_link_s_wait_for_its_submit_is_timed(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = await bench.open(nursery, chunk=2)
    await convert(bench, 1, 2, 3)
    assert observed(desk.timings.wait) == {"": (3, SUBMIT)}  # the third, for the other two's
    assert observed(desk.timings.submit) == {"done": (2, 2 * SUBMIT)}
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
    (family,) = desk.answered.collect()
    assert {
        sample.labels["code"]: sample.value
        for sample in family.samples
        if sample.name == "smartlinkd_links_total"
    } == {"0": 2, "10": 1}
    nursery.cancel_scope.cancel()


async def test_what_was_left_is_not_counted(
    bench: Bench, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    desk = await bench.open(nursery)
    with trio.move_on_after(SUBMIT / 2):
        await convert(bench, 1)
    await trio.sleep(0.1)
    assert bench.links.cut
    assert observed(desk.timings.submit) == {}
    nursery.cancel_scope.cancel()


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
