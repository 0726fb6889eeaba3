"""A generation that takes its time: to its first script, and after the last use of a context."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import trio
from trio.testing import MockClock

from smartlinkd.browser.generation import BEAT_DEADLINE
from tests.browser.test_generation import PLACE, SETTINGS, born, nothing

if TYPE_CHECKING:
    from tests.browser.played import PlayedChromium, PlayedChromiums


async def test_the_first_script_may_take_longer_than_any_beat_after_it(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    def slow(chromium: PlayedChromium) -> None:
        chromium.call_takes = 2 * BEAT_DEADLINE

    chromiums.prepare = slow
    life = await born(nursery)
    assert life.ready()
    nursery.cancel_scope.cancel()


async def test_a_context_that_nobody_uses_any_more_goes(
    chromiums: PlayedChromiums, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    life = await born(nursery, replace(SETTINGS, idle=60))
    await life.generation.use(PLACE, nothing)
    assert life.generation.warm_contexts == 1
    await trio.sleep(2 * 60)
    assert life.generation.warm_contexts == 0
    [canary] = chromiums.launched[0].pages
    assert chromiums.launched[0].contexts == [canary.context]
    nursery.cancel_scope.cancel()
