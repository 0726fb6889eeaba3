"""The kickoffs of a soak."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

import httpx
import trio

from tests.soak.jobs import Form, Kickoff, Kind, Link
from tests.soak.observable import CREW
from tests.soak.worker import End
from tests.soak.world import Json, UnexpectedAnswer, World, expect_ok

POLL_INTERVAL: Final = 0.05
DEADLINE: Final = 150.0
"""Seconds for an execution and its webhook calls: more than the crew's deadline."""

_STATUS: Final = {
    End.RESULT: "completed",
    End.LINKS: "completed",
    End.HUMAN: "completed",
    End.FAILURE: "error",
    End.KILL: "error",
    End.STOP: "stopped",
}


async def kick_off(world: World, http: httpx.AsyncClient, job: Kickoff) -> None:
    """Start an execution, and wait until its client and its webhook receiver know of its end.

    Raises:
        UnexpectedAnswer: The end was wrong or late.
    """
    began = trio.current_time()
    receiver = world.receiver
    body: Json = {
        "inputs": {"end": job.end, "link": world.text(Link(Form.CANONICAL, job.item))},
        "crewWebhookUrl": f"{receiver.url}/end",
    }
    if job.webhooks:
        body["webhooks"] = {"url": f"{receiver.url}/event", "events": []}
    execution = (await _ask(world, http, "POST", "/kickoff", body))["kickoff_id"]
    if job.first_call_refused:
        receiver.refused_once.add(execution)
    with trio.move_on_after(DEADLINE) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiver.wait_for_end, execution)
            await _play_client(world, http, execution, job.end)
            found = await _until(world, http, execution, lambda status: bool(status["finished_at"]))
    if patience.cancelled_caught:
        raise UnexpectedAnswer(
            f"execution {execution} ({job.end}) had no end within {DEADLINE:g} s"
        )
    receiver.refused_once.discard(execution)
    excused = job.end is End.LINKS and not world.was_undisturbed(began)
    if found["status"] != _STATUS[job.end] and not excused:
        raise UnexpectedAnswer(f"execution {execution} ({job.end}) ended as {found}")
    world.results.jobs_done[Kind.CRASH if job.end is End.KILL else Kind.KICKOFF] += 1


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
    path = f"/crews/{CREW}{path}"
    return expect_ok(await world.ask(http, method, path, body, token=world.crew_token))
