"""Kickoff, stop and resume: the client leaves, or a part fails, at every step.

If a client got a kickoff_id, the execution exists. Every execution that exists ends exactly once.
"""

from __future__ import annotations

import pytest
import trio

from tests.every_step.strike import Strike
from tests.every_step.world import ENDED, StrikeWorld, World, is_answered, strike_at
from tests.fakes.network import Json
from tests.fakes.puppets import Step
from tests.faults.crews.client import Client
from tests.faults.sockets import SentRequest

TARGETS = ("client", "executor", "journal")
"""The client leaves, or the actor that works for it fails."""
CREW = {"name": "c", "max_running": 2, "queue": 10, "grace": 1.0, "on_restart": "fail"}
RUN: list[Step] = ["started", "task a", "done a", "result fine"]
ENDS = ("crew_kickoff_completed", "crew_kickoff_failed")


@pytest.mark.parametrize("has_key", [True, False], ids=["with a key", "without one"])
@pytest.mark.parametrize("target", TARGETS)
def test_kickoff(strike_world: StrikeWorld, target: str, has_key: bool) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        client, key = Client(world.stage), f"key {strike.at}" if has_key else ""
        known = await executions(client)
        asked = client.kick_off(*RUN, key=key)
        await strike_at(strike, asked, target, world)
        again = await kick_off_until_accepted(client, key)
        new = await executions(client) - known
        if is_answered(asked):
            assert asked.answer["kickoff_id"] in new
            assert (asked.answer["kickoff_id"] == again) is has_key
        assert len(new) == 1 if has_key else len(new) in (1, 2)
        for each in new:
            assert (await ended_once(world, each))["status"] in allowed_ends(target, "completed")
        await world.check_clean()

    assert strike_world(scenario, CREW, stride=3) > 25


@pytest.mark.parametrize("ahead", [0, 2], ids=["runs", "waits"])
@pytest.mark.parametrize("target", TARGETS)
def test_stop(strike_world: StrikeWorld, target: str, ahead: int) -> None:
    """The execution is running, or is in the queue behind two others."""

    async def scenario(strike: Strike, world: World) -> None:
        client = Client(world.stage)
        others = [await client.start("started", "hear") for _ in range(ahead)]
        kickoff_id = await client.start("started", "hear")
        for each in others or [kickoff_id]:
            await client.wait_status(each, "running", ENDED)
        asked = client.ask("POST", f"/stop/{kickoff_id}")
        await strike_at(strike, asked, target, world, but=200 if ahead else 400)
        for each in others:
            await client.ask("POST", f"/stop/{each}").wait()
            await ended_once(world, each)
        await check_stopped(world, client, kickoff_id, asked, target)

    assert strike_world(scenario, CREW, stride=3) > (30 if ahead else 50)


@pytest.mark.parametrize("target", TARGETS)
def test_resume(strike_world: StrikeWorld, target: str) -> None:
    async def scenario(strike: Strike, world: World) -> None:
        client = Client(world.stage)
        kickoff_id = await client.start(
            "started", "task a", "ask a", "hear", "done a", "result fine"
        )
        await client.wait_status(kickoff_id, "waiting_for_human_input", ENDED)
        asked = answer(client, kickoff_id)
        await strike_at(strike, asked, target, world, but=400)
        found = await client.status(kickoff_id)
        if found["status"] == "waiting_for_human_input":
            again = answer(client, kickoff_id)
            await again.wait()
            assert again.status in (200, 400), again  # 400: the first answer is being recorded
        assert (await ended_once(world, kickoff_id))["status"] in allowed_ends(target, "completed")
        told = (await event_types(world, kickoff_id)).count("human_feedback_received")
        assert told <= 1
        assert told == 1 or not is_answered(asked)
        await world.check_clean()

    assert strike_world(scenario, CREW, stride=3) > 35


# Requests


def answer(client: Client, kickoff_id: str) -> SentRequest:
    body = {"execution_id": kickoff_id, "task_id": "a", "human_feedback": "x", "is_approve": True}
    return client.ask("POST", "/resume", body)


async def kick_off_until_accepted(client: Client, key: str) -> str:
    """Kick off until the executor accepts it, and return the kickoff_id."""
    with trio.fail_after(ENDED):
        while True:
            asked = client.kick_off(*RUN, key=key)
            await asked.wait()
            if asked.status == 200:
                return str(asked.answer["kickoff_id"])
            assert asked.status == 503, asked
            await trio.sleep(0.1)


# Checks


def allowed_ends(target: str, usual: str) -> tuple[str, ...]:
    """Return the allowed statuses: the failure of a part may interrupt an execution."""
    return (usual,) if target == "client" else (usual, "interrupted")


async def check_stopped(
    world: World, client: Client, kickoff_id: str, asked: SentRequest, target: str
) -> None:
    """Check that the execution is stopped, by this request or by another one after it."""
    again = client.ask("POST", f"/stop/{kickoff_id}")
    await again.wait()
    assert again.status in (200, 400), again
    if is_answered(asked):
        assert again.status == 400, again
    found = await ended_once(world, kickoff_id)
    assert found["status"] in allowed_ends(target, "stopped")
    if 200 in (asked.status, again.status):
        assert found["status"] == "stopped"
    await world.check_clean()


async def executions(client: Client) -> set[str]:
    """Return the ids of the crew's newest hundred executions."""
    found = await client.get("/executions?limit=100")
    return {each["kickoff_id"] for each in found["executions"]}


async def ended_once(world: World, kickoff_id: str) -> Json:
    """Wait for the execution's end and return its status. It must have one end event."""
    found = await Client(world.stage).wait_ended(kickoff_id, ENDED)
    assert sum(kind in ENDS for kind in await event_types(world, kickoff_id)) == 1
    return found


async def event_types(world: World, kickoff_id: str) -> list[str]:
    events = await world.stage.crews.store.events(kickoff_id, after=0, limit=500)
    return [event.type for event in events]
