"""The daemon's start and end, interrupted at every step.

The interruption is SIGTERM, a second SIGTERM, or a part that fails. All runs share one state
directory, so that each start reads what the last end has left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.every_step.driver import AtEveryStep
from tests.every_step.strike import Strike
from tests.every_step.world import SOON, World, check_links, made_world
from tests.faults.crews.client import Client
from tests.faults.stage import wait_until

CREW = {"name": "c", "max_running": 2, "queue": 10, "grace": 1.0, "on_restart": "fail"}
STARTED = 35.0
"""Seconds until a start has succeeded or failed. The supervisor gives each part thirty; an executor
needs them all if the store fails at its first request."""
STOPPED = 20.0
"""Seconds until a daemon has stopped: requests have ten, workers one."""
AT_ONCE = 3.0
"""Seconds until a daemon has stopped after two signals: the browser has two for its contexts."""

StrikeLives = Callable[..., int]


@pytest.fixture
def strike_lives(at_every_step: AtEveryStep, tmp_path: Path) -> StrikeLives:
    """Strike at every step of a scenario that starts a daemon and ends with its end."""

    @asynccontextmanager
    async def world() -> AsyncIterator[World]:
        with made_world(tmp_path, (CREW,)) as made:
            async with trio.open_nursery() as nursery:  # a run without a strike
                await nursery.start(made.stage.run)
                made.stage.stop()
            yield made

    def strike(scenario: Callable[[Strike, World], Awaitable[None]], *, stride: int) -> int:
        async def whole(strike: Strike, world: World) -> None:
            before = world.stage.descriptors()
            await scenario(strike, world)
            await world.check_ended()
            assert world.stage.descriptors() == before

        clock = MockClock(autojump_threshold=0)
        return at_every_step.within(world, whole, stride=stride, clock=clock)

    return strike


def test_start_is_cancelled(strike_lives: StrikeLives) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        strike.arm(world.stage.stop_at_once)
        async with trio.open_nursery() as nursery:
            ended = start_daemon(world, nursery)
            await wait_up_or_ended(world, ended)
            strike.disarm()
            world.stage.stop()

    assert strike_lives(scenario, stride=11) > 200


@pytest.mark.parametrize("part", ["auth", "browser", "journal", "executor", "http"])
def test_part_fails_during_start(strike_lives: StrikeLives, part: str) -> None:
    """A part that fails at its start ends the daemon; one that fails later is restarted."""

    async def scenario(strike: Strike, world: World) -> None:
        strike.arm(lambda: world.parts.fail(part))
        async with trio.open_nursery() as nursery:
            ended = start_daemon(world, nursery)
            await wait_up_or_ended(world, ended)
            strike.disarm()
            # A part that was struck just now must get its cancellation first.
            await wait_all_tasks_blocked()
            await wait_up_or_ended(world, ended)
            if not ended.is_set():
                await world.check_served(world.account)
                world.stage.stop()

    assert strike_lives(scenario, stride=41) > 200


def test_daemon_is_stopped_at_any_step(strike_lives: StrikeLives) -> None:
    """The steps are those from the start to the first answer."""

    async def scenario(strike: Strike, world: World) -> None:
        strike.arm(world.stage.stop)
        async with trio.open_nursery() as nursery:
            ended = start_daemon(world, nursery)
            await wait_up_or_ended(world, ended)
            if world.stage.ready:
                account = world.stage.account()
                asked = world.stage.ask(account)
                await asked.wait()
                if asked.status == 200:
                    check_links(asked, account)
                else:
                    assert strike.happened, asked
            strike.disarm()
            world.stage.stop()
            with trio.fail_after(STOPPED):
                await ended.wait()

    assert strike_lives(scenario, stride=53) > 800


def test_second_signal_at_any_step_of_stop(strike_lives: StrikeLives) -> None:
    """A submit is under way, an execution is running, and one is queued."""
    kicked_off: list[str] = []
    struck = 0.0

    async def scenario(strike: Strike, world: World) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.stage.run)
            await world.stage.until_ready(SOON)
            client = Client(world.stage)
            for each in kicked_off:
                assert (await client.wait_ended(each, SOON))["status"] == "interrupted"
            kicked_off[:] = [await client.start("started", "hear") for _ in range(2)]
            for each in kicked_off:
                await client.wait_status(each, "running", SOON)
            asked, _ = await world.hold_submit()
            world.stage.stop()
            strike.arm(lambda: stop_at_once(world))
            await asked.wait()
            await world.stage.ended.wait()
            strike.disarm()
            if strike.happened:
                assert trio.current_time() - struck <= AT_ONCE
            assert asked.status == 0, asked  # the portal never answered it

    def stop_at_once(world: World) -> None:
        nonlocal struck
        struck = trio.current_time()
        world.stage.stop_at_once()

    assert strike_lives(scenario, stride=59) > 200


def start_daemon(world: World, nursery: trio.Nursery) -> trio.Event:
    """Start the daemon. Return an event that is set at its end."""
    ended = trio.Event()

    async def life() -> None:
        await world.stage.run()
        ended.set()

    nursery.start_soon(life)
    return ended


async def wait_up_or_ended(world: World, ended: trio.Event) -> None:
    """Wait until the daemon serves and its browser is ready, or until it has ended."""
    stage = world.stage
    assert await wait_until(
        lambda: ended.is_set() or (stage.ready and stage.http_server.open), STARTED
    )
