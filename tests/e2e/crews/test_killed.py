"""The daemon is killed, at moments that suit nobody: no execution and no webhook call is lost.

Clients kick off all the while, each the next one as soon as the last was answered. What was not
answered is sent again after the start, with the same key, as a client does that wants it done once.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon
    from tests.e2e.crews.conftest import Client, Employing, Meet
    from tests.fakes.receiver import Call, Receiver

RUNNING = 2
"""Of each crew at a time."""
QUEUE = 12
EVERY = 8
"""Of so many series of calls one is refused at first."""
SECRET = "what-webhook-calls-are-signed-with"
FULL_QUEUE = 0.02
"""Seconds that a client lets pass when it is told to come again."""
LONG = 30.0
"""Seconds in which a queue has moved on."""


@dataclass
class Customer:
    """Kicks off, and keeps what was returned, in that order."""

    client: Client
    receiver: Receiver
    ids: list[str] = field(default_factory=list)
    _unanswered: bool = False

    async def keep_on(self) -> None:
        """Until nobody answers any more."""
        try:
            while True:
                self._unanswered = True
                await self._kick_off()
        except httpx.TransportError:
            return

    async def make_up(self) -> None:
        """Send again what was not answered, until it is."""
        with trio.fail_after(LONG):
            while self._unanswered:
                await self._kick_off()

    async def _kick_off(self) -> None:
        url = f"{self.receiver.url}/{self.client.crew}"
        body = {
            "inputs": {},
            "crewWebhookUrl": f"{url}/crew",
            "taskWebhookUrl": f"{url}/task",
            "webhooks": {"url": f"{url}/stream", "events": []},
        }
        key = f"kickoff {len(self.ids)}"
        answer = await self.client.ask("POST", "/kickoff", body, Idempotency_Key=key)
        if answer.status_code == 503:
            assert "queue" in answer.json()["message"]
            await trio.sleep(FULL_QUEUE)
            return
        assert answer.status_code == 200, answer.text
        self.ids.append(answer.json()["kickoff_id"])
        self._unanswered = False


@pytest.mark.deadline(300, reason="a hundred executions, and four starts of the daemon")
async def test_nothing_is_lost(
    employing: Employing, meet: Meet, receiver: Receiver, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    receiver.answer = clumsy()
    common = {"gate": gate, "max_running": RUNNING, "queue": QUEUE}
    with employing(
        {"once": common, "again": {**common, "on_restart": "rerun"}}, webhooks={"secret": SECRET}
    ) as daemon:
        once, again = [Customer(await meet(daemon, name), receiver) for name in ("once", "again")]
        daemon.secrets.add(SECRET)

        async with kicking_off(once, again):
            await daemon.until("4 run and 20 wait", lambda: is_busy(daemon, 2 * RUNNING, 20))
            assert len(daemon.workers()) == 2 * RUNNING
            await daemon.kill()

        daemon.begin()
        daemon.program.wait_for("going on with them", daemon.program.log)
        await daemon.kill()

        daemon.start()
        for customer in (once, again):
            known = await customer.client.ids()
            assert known[: len(customer.ids)] == customer.ids
        async with kicking_off(once, again):
            gate.touch()
            await daemon.until("the first have ended", lambda: has_ended(again, RUNNING))
            await daemon.until("calls were refused", lambda: has_refused(receiver, 4))
            await daemon.kill()

        daemon.start()
        async with kicking_off(once, again):
            await daemon.until("more have ended", lambda: has_ended(again, 4 * RUNNING))
            await daemon.kill()

        daemon.start()
        for customer in (once, again):
            await customer.make_up()
            assert await customer.client.ids() == customer.ids
            ends = [await customer.client.ended(each) for each in customer.ids]
            check_order(ends)
            check_statuses(customer, [end["status"] for end in ends])
            for end in ends:
                await check_calls(daemon, customer, end)
        requeued = [each["type"] for each in await again.client.events(again.ids[0])]
        assert "crew_execution_requeued" in requeued
        assert all(is_signed(call) for call in receiver.calls)


@asynccontextmanager
async def kicking_off(*customers: Customer) -> AsyncIterator[None]:
    """They keep on. Within the block the daemon has to be ended."""
    async with trio.open_nursery() as nursery:
        for customer in customers:
            nursery.start_soon(customer.keep_on)
        yield


def clumsy() -> Callable[[Call], Awaitable[int]]:
    """Leaves the very first call without an answer, and refuses the first of others at times."""
    seen: set[tuple[str, str]] = set()

    async def answer(call: Call) -> int:
        series = (call.path, told_of(call))
        if series in seen:
            return 200
        seen.add(series)
        if len(seen) == 1:
            await trio.sleep_forever()
        return 500 if len(seen) % EVERY == 0 else 200

    return answer


def told_of(call: Call) -> str:
    """The execution that a call is about."""
    found = call.body["events"][0]["execution_id"] if "events" in call.body else None
    return str(found or call.body["kickoff_id"])


async def is_busy(daemon: Daemon, running: int, waiting: int) -> bool:
    crews = (await daemon.status())["crews"]
    return (
        sum(int(crew["running"]) for crew in crews) == running
        and sum(int(crew["waiting"]) for crew in crews) >= waiting
    )


async def has_ended(customer: Customer, number: int) -> bool:
    """Whether the first so many have."""
    if len(customer.ids) < number:
        return False
    last = await customer.client.status(customer.ids[number - 1])
    return bool(last["finished_at"])


async def has_refused(receiver: Receiver, number: int) -> bool:
    return len(receiver.refused) >= number


def check_order(ends: list[dict[str, Any]]) -> None:
    """Each had its turn after those before it; which of two that start together is first, is not
    told."""
    starts = [end["started_at"] for end in ends]
    for place, start in enumerate(starts):
        overtaken = [earlier for earlier in starts[:place] if earlier > start]
        assert len(overtaken) < RUNNING


def check_statuses(customer: Customer, statuses: list[str]) -> None:
    """Only what was running when the daemon was killed may have been interrupted."""
    if customer.client.crew == "again":
        assert set(statuses) == {"completed"}
    else:
        assert set(statuses[:RUNNING]) == {"interrupted"}
        assert set(statuses) == {"interrupted", "completed"}
        assert statuses.count("interrupted") <= 3 * RUNNING


async def check_calls(daemon: Daemon, customer: Customer, end: dict[str, Any]) -> None:
    """All that is owed for an execution arrives; what arrives twice is the same twice."""
    owed = [each["type"] for each in await customer.client.events(end["kickoff_id"])]
    path, kickoff_id = f"/{customer.client.crew}", end["kickoff_id"]

    async def arrived() -> bool:
        types = [each["type"] for each in stream_of(customer.receiver, path, kickoff_id)]
        assert types == owed[: len(types)]
        ends = bodies_of(customer.receiver, f"{path}/crew", kickoff_id)
        tasks = bodies_of(customer.receiver, f"{path}/task", kickoff_id)
        assert len(tasks) <= owed.count("task_completed")
        return types == owed and len(ends) == 1 and len(tasks) == owed.count("task_completed")

    await daemon.until(f"the calls of {kickoff_id}", arrived)
    (told,) = bodies_of(customer.receiver, f"{path}/crew", kickoff_id)
    assert (told["result"], told.get("error")) == (
        ("done", None) if end["status"] == "completed" else (None, end["error"])
    )


def bodies_of(receiver: Receiver, path: str, kickoff_id: str) -> list[dict[str, Any]]:
    """What was told of an execution there, each call once."""
    found = [call for call in receiver.at(path) if told_of(call) == kickoff_id]
    return list({call.headers["webhook-id"]: call.body for call in found}.values())


def stream_of(receiver: Receiver, path: str, kickoff_id: str) -> list[dict[str, Any]]:
    """The events of an execution as they arrived, each once."""
    found = bodies_of(receiver, f"{path}/stream", kickoff_id)
    return [event for body in found for event in body["events"]]


def is_signed(call: Call) -> bool:
    named = (call.headers["webhook-id"], call.headers["webhook-timestamp"])
    signed = ".".join(named).encode() + b"." + call.content
    digest = base64.b64encode(hmac.digest(SECRET.encode(), signed, "sha256")).decode()
    return call.headers["webhook-signature"] == f"v1,{digest}"
