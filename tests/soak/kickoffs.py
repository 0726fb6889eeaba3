"""Doing the kickoffs of a soak, each to its end."""

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
from tests.soak.world import Json, World, Wrong, right

LOOK_EVERY: Final = 0.05
LONGEST: Final = 150.0
"""Seconds for an execution and all that is told of it: more than the crew's deadline."""

_STATUS: Final = {
    End.RESULT: "completed",
    End.LINKS: "completed",
    End.HUMAN: "completed",
    End.FAILURE: "error",
    End.KILL: "error",
    End.STOP: "stopped",
}


async def kick_off(world: World, http: httpx.AsyncClient, job: Kickoff) -> None:
    """An execution, until its client and its webhook know of its end. Raises `Wrong`."""
    began = trio.current_time()
    ends = world.ends
    body: Json = {
        "inputs": {"end": job.end, "link": world.text(Link(Form.CANONICAL, job.item))},
        "crewWebhookUrl": f"{ends.url}/end",
    }
    if job.webhooks:
        body["webhooks"] = {"url": f"{ends.url}/event", "events": []}
    execution = (await _ask(world, http, "POST", "/kickoff", body))["kickoff_id"]
    if job.refused:
        ends.refusing.add(execution)
    with trio.move_on_after(LONGEST) as patience:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.told_of_end, execution)
            await _see_to(world, http, execution, job.end)
            found = await _until(world, http, execution, lambda now: bool(now["finished_at"]))
    if patience.cancelled_caught:
        raise Wrong(f"execution {execution} ({job.end}) was not told of within {LONGEST:g} s")
    ends.refusing.discard(execution)
    excused = job.end is End.LINKS and not world.was_calm(began)
    if found["status"] != _STATUS[job.end] and not excused:
        raise Wrong(f"execution {execution} ({job.end}) ended as {found}")
    world.book.done[Kind.CRASH if job.end is End.KILL else Kind.KICKOFF] += 1


async def _see_to(world: World, http: httpx.AsyncClient, execution: str, end: End) -> None:
    """What a client has to do for it to end."""
    match end:
        case End.HUMAN:
            asks = lambda now: now["status"] == "waiting_for_human_input"  # noqa: E731
            await _until(world, http, execution, asks)
            body = {
                "execution_id": execution,
                "task_id": "only",
                "human_feedback": "Well done.",
                "is_approve": True,
            }
            await _ask(world, http, "POST", "/resume", body)
        case End.STOP:
            await _until(world, http, execution, _is_at_work)
            await _ask(world, http, "POST", f"/stop/{execution}")
        case End.KILL:
            found = await _until(world, http, execution, _is_at_work)
            os.kill(int(found["current_task"]), signal.SIGKILL)  # its name is its process id


def _is_at_work(now: Json) -> bool:
    return bool(now["current_task"])


async def _until(
    world: World, http: httpx.AsyncClient, execution: str, met: Callable[[Json], bool]
) -> Json:
    while True:
        now = await _ask(world, http, "GET", f"/status/{execution}?wait=1")
        if met(now) or now["finished_at"]:
            return now
        await trio.sleep(LOOK_EVERY)


async def _ask(
    world: World, http: httpx.AsyncClient, method: str, path: str, body: Json | None = None
) -> Json:
    path = f"/crews/{CREW}{path}"
    return right(await world.ask(http, method, path, body, token=world.crew_token))
