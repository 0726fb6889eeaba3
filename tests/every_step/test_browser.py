"""The browser's restart, and its recycling while a request is on it.

`test_life.py` tests its first start and its end with the daemon.
"""

from __future__ import annotations

import pytest
import trio

from smartlinkd.browser.limits import BrowserLimits
from tests.every_step.strike import Strike
from tests.every_step.world import (
    SOON,
    StrikeWorld,
    World,
    check_failure_answer,
    check_links,
    is_answered,
)
from tests.faults.stage import BIG, POLL_INTERVAL, wait_until

HEALTHY = 60.0
"""Seconds of health that reset the browser's count of failures."""


def test_part_fails_during_browser_restart(strike_world: StrikeWorld) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        world.stage.machine.process.kill()
        strike.arm(lambda: world.parts.fail("browser"))
        await wait_replaced(world)
        strike.disarm()
        await world.check_clean()
        await world.check_served(world.account)
        await trio.sleep(HEALTHY)

    assert strike_world(scenario, stride=17) > 200


async def wait_replaced(world: World) -> None:
    """Wait until the next browser has replaced the current one."""
    before = world.stage.machine.process.pid
    browser = world.stage.browser
    assert await wait_until(lambda: browser.is_ready and browser.status().pid != before, SOON)


@pytest.mark.parametrize("target", ["client", "conversion", "browser"])
def test_recycling_during_a_submit(strike_world: StrikeWorld, target: str) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        await world.check_served(world.account)
        asked, gate = await world.hold_submit()
        leaves = asked.exchange.under_way.cancel
        strike.arm(leaves if target == "client" else lambda: world.parts.fail(target))
        world.stage.machine.memory = BIG
        await wait_replaced(world)
        world.stage.machine.memory = 0
        gate.open()
        await asked.wait()
        await trio.sleep(POLL_INTERVAL)  # the old browser ends after its last work
        strike.disarm()
        if not strike.happened or is_answered(asked):  # a client that leaves gets no answer
            assert asked.status == 200, asked
            check_links(asked, world.account)
        elif target != "client":
            check_failure_answer(asked)
        await world.check_clean()
        await world.check_served(world.account)

    limits = BrowserLimits(measure_interval_s=0.5)
    assert strike_world(scenario, stride=41, browser_limits=limits) > 200
