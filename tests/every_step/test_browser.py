"""The browser: restarted, and recycled while somebody is at work on it.

Its first start, and its end with the daemon's, are in `test_life.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from daemon.browser import generation
from tests.every_step.strike import Strike
from tests.every_step.world import SOON, World, got_its_own, was_told
from tests.faults.phases import SUBMIT
from tests.faults.stage import BIG, LOOK_EVERY

if TYPE_CHECKING:
    from tests.every_step.conftest import StrikeWorld

HEALTHY = 60.0
"""Seconds after which the next end of a browser is not counted with the one before."""


def test_a_restart_during_which_its_part_fails(strike_world: StrikeWorld) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        world.stage.machine.process.kill()
        strike.arm(lambda: world.parts.fail("browser"))
        await is_replaced(world)
        strike.disarm()
        await world.is_well()
        await world.is_served(world.account)
        await trio.sleep(HEALTHY)

    assert strike_world(scenario, stride=17) > 200


async def is_replaced(world: World) -> None:
    """The browser that there is gives way to the next one."""
    before = world.stage.machine.process.pid
    with trio.fail_after(SOON):
        while not world.stage.ready or world.stage.browser.status().pid == before:  # noqa: ASYNC110
            await trio.sleep(LOOK_EVERY)


@pytest.mark.parametrize("death", ["client", "conversion", "browser"])
def test_a_recycling_while_somebody_is_at_work(
    strike_world: StrikeWorld, death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "MEASURE_EVERY", 0.5)

    async def scenario(strike: Strike, world: World) -> None:
        await world.is_served(world.account)
        gate = world.stage.network.hold(SUBMIT)
        asked = world.stage.ask(world.account)
        await gate.reached.wait()
        del world.stage.network.gates[SUBMIT]
        leaves = asked.exchange.under_way.cancel
        strike.arm(leaves if death == "client" else lambda: world.parts.fail(death))
        world.stage.machine.memory = BIG
        await is_replaced(world)
        world.stage.machine.memory = 0
        gate.open()
        await asked.wait()
        await trio.sleep(LOOK_EVERY)  # the one before ends when its last work has
        strike.disarm()
        if not strike.happened or asked.status == 200:
            assert asked.status == 200, asked
            got_its_own(asked, world.account)
        elif death != "client":
            was_told(asked)
        await world.is_well()
        await world.is_served(world.account)

    assert strike_world(scenario, stride=41) > 200
