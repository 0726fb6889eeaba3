"""The kickoffs of a soak."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from typing import Final

import httpx
import trio

from tests.simulation.answers import WrongAnswer
from tests.soak.crew import NAME, End
from tests.soak.world import Json, World, expect_ok, pick

POLL_INTERVAL: Final = 0.05
DEADLINE: Final = 150.0
"""Seconds for an execution and its webhook calls: more than the crew's deadline."""

_ENDS: Final = {End.RESULT: 45, End.LINKS: 15, End.FAILURE: 15, End.HUMAN: 10, End.STOP: 15}
_STATUS: Final = {End.FAILURE: "error", End.KILL: "error", End.STOP: "stopped"}


async def kick_off(world: World, http: httpx.AsyncClient, chance: random.Random) -> None:
    """Start an execution with a random end, and wait for it.

    Raises:
        WrongAnswer: The end was wrong or late.
    """
    await play_kickoff(
        world,
        http,
        pick(chance, _ENDS),
        all_events=chance.random() < 0.3,
        is_refused_once=chance.random() < 0.02,
    )
    world.results.done["kickoff"] += 1


async def play_kickoff(
    world: World,
    http: httpx.AsyncClient,
    end: End,
    *,
    all_events: bool = False,
    is_refused_once: bool = False,
) -> None:
    """Start an execution, and wait until its client and its webhook receiver know of its end.

    Raises:
        WrongAnswer: The end was wrong or late.
    """
    began, receiver = trio.current_time(), world.receiver
    body: Json = {
        "inputs": {"end": end, "link": world.canonical_link().text},
        "crewWebhookUrl": f"{receiver.url}/end",
    }
    if all_events:
        body["webhooks"] = {"url": f"{receiver.url}/event", "events": []}
    execution = (await _ask(world, http, "POST", "/kickoff", body))["kickoff_id"]
    if is_refused_once:
        receiver.refused_once.add(execution)
    with trio.move_on_after(DEADLINE) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.wait_for_end, execution)
            await _play_client(world, http, execution, end)
            found = await _until(world, http, execution, lambda status: bool(status["finished_at"]))
    if patience.cancelled_caught:
        raise WrongAnswer(f"execution {execution} ({end}) had no end within {DEADLINE:g} s")
    receiver.refused_once.discard(execution)
    excused = end is End.LINKS and not world.was_undisturbed(began)
    if found["status"] != _STATUS.get(end, "completed") and not excused:
        raise WrongAnswer(f"execution {execution} ({end}) ended as {found}")


async def _play_client(world: World, http: httpx.AsyncClient, execution: str, end: End) -> None:
    """Answer, stop or kill the execution, if it needs that for its end."""
    match end:
        case End.HUMAN:
            is_waiting = lambda status: status["status"] == "waiting_for_human_input"  # noqa: E731
            await _until(world, http, execution, is_waiting)
            body = {
                "execution_id": execution,
                "task_id": "only",
                "human_feedback": "Well done.",
                "is_approve": True,
            }
            await _ask(world, http, "POST", "/resume", body)
        case End.STOP:
            await _until(world, http, execution, _has_worker)
            await _ask(world, http, "POST", f"/stop/{execution}")
        case End.KILL:
            found = await _until(world, http, execution, _has_worker)
            # The task's name is the worker's process id.
            os.kill(int(found["current_task"]), signal.SIGKILL)


def _has_worker(status: Json) -> bool:
    return bool(status["current_task"])


async def _until(
    world: World, http: httpx.AsyncClient, execution: str, condition: Callable[[Json], bool]
) -> Json:
    while True:
        status = await _ask(world, http, "GET", f"/status/{execution}?wait=1")
        if condition(status) or status["finished_at"]:
            return status
        await trio.sleep(POLL_INTERVAL)


async def _ask(
    world: World, http: httpx.AsyncClient, method: str, path: str, body: Json | None = None
) -> Json:
    path = f"/crews/{NAME}{path}"
    return expect_ok(await world.ask(http, method, path, body, token=world.crew_token))
