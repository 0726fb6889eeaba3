"""The browser: used, restarted, and recycled while somebody is at work on it.

Its first start, and its end with the daemon's, are in `test_life.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.chromium import LaunchSettings, launch
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.browser.page import Page
from smartlinkd.browser.tab_pool import TabPool, TabSpec
from tests.browser.jobs import never_invalid
from tests.every_step.driver import AtEveryStep
from tests.every_step.strike import Strike
from tests.every_step.world import SOON, StrikeWorld, World, got_its_own, was_told
from tests.fakes.machine import Machine
from tests.fakes.network import sandbox_network
from tests.faults import stage
from tests.faults.phases import SUBMIT
from tests.faults.stage import BIG, LOOK_EVERY, comes_about

HEALTHY = 60.0
"""Seconds after which the next end of a browser is not counted with the one before."""


@asynccontextmanager
async def tabs(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[tuple[TabPool, Machine]]:
    """A browser without a daemon around it, since then all steps can be struck."""
    network, _ = sandbox_network()
    machine = Machine(folder, network)
    machine.install(patch)
    settings = LaunchSettings(executable=machine.executable, profiles=machine.profiles)
    async with (
        launch(settings) as chromium,
        machine._connect(chromium.endpoint) as connection,
        trio.open_nursery() as nursery,
    ):
        yield TabPool(connection, nursery, size=4, idle_s=600.0, limits=BrowserLimits()), machine


@pytest.mark.parametrize("company", [0, 1], ids=["alone", "in company"])
def test_who_opens_a_tab_leaves(
    at_every_step: AtEveryStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, company: int
) -> None:
    numbers = count()

    async def job(page: Page) -> object:
        return await page.evaluate("() => 1")

    async def open_tab(page: Page) -> None:
        await page.evaluate("() => 1")

    def cookies() -> list[dict[str, object]]:
        return [{"name": "n", "value": "v"}]

    async def scenario(strike: Strike, here: tuple[TabPool, Machine]) -> None:
        pool, machine = here
        spec = TabSpec(str(next(numbers)), cookies, "tab", open_tab, never_invalid)
        async with trio.open_nursery() as others:
            for _ in range(company):
                others.start_soon(pool.use, spec, job)
            with trio.CancelScope() as scope:
                strike.arm(scope.cancel)
                await pool.use(spec, job)
            strike.disarm()
        await wait_all_tasks_blocked()
        assert len(machine.browser.tabs) <= len(machine.browser.contexts) == len(pool)
        assert await pool.use(spec, job) == 1

    def world() -> AbstractAsyncContextManager[tuple[TabPool, Machine]]:
        return tabs(tmp_path, monkeypatch)

    clock = MockClock(autojump_threshold=0)
    stride = 3 if company else 1
    assert at_every_step.within(world, scenario, stride=stride, clock=clock) > 100


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
    browser = world.stage.browser
    assert await comes_about(lambda: browser.is_ready and browser.status().pid != before, SOON)


@pytest.mark.parametrize("death", ["client", "conversion", "browser"])
def test_a_recycling_while_somebody_is_at_work(
    strike_world: StrikeWorld, death: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "BROWSER_LIMITS", BrowserLimits(measure_interval_s=0.5))

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
        whole = asked.status == 200 and not asked.exchange.fault  # one may leave in the midst of it
        if not strike.happened or whole:
            assert asked.status == 200, asked
            got_its_own(asked, world.account)
        elif death != "client":
            was_told(asked)
        await world.is_well()
        await world.is_served(world.account)

    assert strike_world(scenario, stride=41) > 200
