"""A conversion, whose client leaves at every step, or one of whose parts fails at every step."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.every_step.strike import Strike
from tests.every_step.world import StrikeWorld, World, got_its_own, strike_at

LATER = 1.0
"""Seconds in which a conversion would come to its end."""
PARTS = ("auth", "conversion", "browser")


def test_the_client_of_a_page_to_be_opened_leaves(strike_world: StrikeWorld) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        account = world.stage.account()
        asked = world.stage.ask(account)
        await strike_at(strike, asked, "client", world)
        await nothing_is_done_for_nobody(world)
        await world.is_well()
        await world.serves_on(account)

    assert strike_world(scenario, stride=7) > 900


async def nothing_is_done_for_nobody(world: World) -> None:
    """From the moment in which a client has gone the portal is not asked any more."""
    await wait_all_tasks_blocked()
    requests = len(world.stage.network.requests)
    await trio.sleep(LATER)
    assert len(world.stage.network.requests) == requests


@pytest.mark.parametrize("part", PARTS)
def test_a_part_fails(strike_world: StrikeWorld, part: str) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        account = world.stage.account()
        asked = world.stage.ask(account)
        await strike_at(strike, asked, part, world)
        if asked.status == 200:
            got_its_own(asked, account)
        await world.is_well()
        await world.serves_on(account)

    assert strike_world(scenario, stride=31) > 900
