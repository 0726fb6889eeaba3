"""A conversion whose client leaves, or during which a part fails, at every step."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.every_step.strike import Strike
from tests.every_step.world import StrikeWorld, World, check_links, strike_at

LATER = 1.0
"""Seconds within which a conversion would end."""
PARTS = ("auth", "conversion", "browser")


@pytest.mark.parametrize("company", [0, 1], ids=["alone", "in company"])
def test_client_leaves_while_its_page_loads(strike_world: StrikeWorld, company: int) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        account = world.stage.account()
        asked = world.stage.ask(account)
        beside = [world.stage.ask(account) for _ in range(company)]
        await strike_at(strike, asked, "client", world)
        for each in beside:
            await each.expect_ok()
            check_links(each, account)
        await check_portal_idle(world)
        await world.check_clean()
        await world.check_served_sometimes(account)

    assert strike_world(scenario, stride=17 if company else 7) > 900


async def check_portal_idle(world: World) -> None:
    """Check that the portal gets no request after the client has left."""
    await wait_all_tasks_blocked()
    requests = len(world.stage.network.requests)
    await trio.sleep(LATER)
    assert len(world.stage.network.requests) == requests


def test_client_leaves_and_others_get_their_links(strike_world: StrikeWorld) -> None:
    """Beside it are requests with the same and other sub-ids, and one of another account."""

    async def scenario(strike: Strike, world: World) -> None:
        account, other = world.account, world.stage.account()
        ahead = world.stage.ask(account, items=2)
        leaver = world.stage.ask(account, items=2)
        beside = [world.stage.ask(account, items=4), world.stage.ask(account, sub_id="another")]
        elsewhere = world.stage.ask(other)
        await strike_at(strike, leaver, "client", world)
        for asked in (ahead, *beside, elsewhere):
            await asked.expect_ok()
            check_links(asked, other if asked is elsewhere else account)
        for each in (account, other):
            assert world.stage.portal.accounts[each].overlapping == 1
        await world.check_clean()
        await world.check_served(account)

    assert strike_world(scenario, stride=41) > 500


@pytest.mark.parametrize("part", PARTS)
def test_part_fails_during_conversion(strike_world: StrikeWorld, part: str) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        account = world.stage.account()
        asked = world.stage.ask(account)
        await strike_at(strike, asked, part, world)
        if asked.status == 200:
            check_links(asked, account)
        await world.check_clean()
        await world.check_served_sometimes(account)

    assert strike_world(scenario, stride=31) > 900
