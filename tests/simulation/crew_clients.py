"""Clients that kick off crews. They follow their executions, answer human input, and stop some."""

from __future__ import annotations

import json
import random
from typing import Any

import trio

from tests.fakes.network import Json
from tests.simulation.crews import failing_script, successful_script
from tests.simulation.executions import Execution
from tests.simulation.receivers import webhook_fields
from tests.simulation.world import ANSWERED, Call, World

WAITED = 60.0
"""The longest `?wait=`, in seconds."""
STOPPED = 90.0
"""Seconds in which a stop is answered."""
TRIES = 40
"""Attempts of a kickoff, while the daemon is down or full."""
RETRY_AFTER = 4.0
"""Seconds between two attempts, and between two connections for events."""
INTERVAL = 400.0
"""Mean seconds between two kickoffs of a client."""


class CrewClient:
    """A client of one crew."""

    def __init__(self, name: str, crew: str, world: World, chance: random.Random) -> None:
        self.name = name
        self._crew = crew
        self._world = world
        self._chance = chance
        self._interval_s = chance.uniform(0.5, 3.0) * INTERVAL
        self._success_chance = chance.uniform(0.3, 1.0)
        self._has_key = chance.random() < 0.8
        self._follows = chance.choice(("waits", "polls", "events"))

    async def run(self) -> None:
        await self._world.act_in_bursts(self.kick_off, self._chance, self._interval_s, 0.1, 8)

    async def kick_off(self) -> None:
        """Start an execution, and follow it to its end."""
        world = self._world
        with world.busy():
            execution = self._new()
            if not await self._accepted(execution):
                return
            await trio.lowlevel.checkpoint()
            if self._chance.random() >= 0.1 or world.is_calm:  # others do not follow it
                world.log.note(f"{self.name}: {execution.number} is {execution.id}")
                await self._follow(execution)

    def _new(self) -> Execution:
        world, chance = self._world, self._chance
        number = len(world.executions.by_number) + 1
        succeeds = world.is_calm or chance.random() < self._success_chance
        item = 700_000_000 + number
        script = (
            successful_script(self._crew, number, chance, item)
            if succeeds
            else failing_script(chance)
        )
        world.expectations.crew_may_convert(script.items)
        user = self._crew == "brisk" and chance.random() < 0.3
        execution = Execution(
            number=number,
            crew=self._crew,
            script=script,
            token=world.tokens[self._crew, "anna" if user else ""],
            asked=trio.current_time(),
            webhooks=chance.random() < 0.6,
        )
        world.executions.by_number[number] = execution
        return execution

    async def _accepted(self, execution: Execution) -> bool:
        world = self._world
        body: Json = {
            "inputs": {"script": list(execution.script.steps)},
            "meta": execution.meta,
            **(webhook_fields(execution.number) if execution.webhooks else {}),
        }
        headers = {"idempotency-key": f"key-{execution.number}"} if self._has_key else {}
        for _ in range(TRIES if self._has_key else 1):
            call = await self._ask(execution, "POST", "/kickoff", body, headers=headers)
            if call.status == 200:
                world.executions.accepted(execution, call.answer["kickoff_id"])
                world.log.counts["kickoffs"] += 1
                return True
            await trio.sleep(RETRY_AFTER)
        return False

    async def _follow(self, execution: Execution) -> None:
        world, chance = self._world, self._chance
        async with trio.open_nursery() as nursery:
            if chance.random() < 0.15 and not world.is_calm:
                nursery.start_soon(self._stop, execution, chance.uniform(0.0, 30.0))
            if self._follows == "events":
                nursery.start_soon(self._read_events, execution)
            while not execution.final:
                await self._poll(execution)
                await trio.sleep(chance.uniform(2.0, 15.0))
            nursery.cancel_scope.cancel()

    async def _poll(self, execution: Execution) -> None:
        world = self._world
        is_healthy = world.was_healthy(execution.asked)
        # A question does not end `?wait=`, so a client that may be asked polls without it.
        waits = self._follows == "waits" and not execution.script.asks
        wait = f"?wait={self._chance.choice((5, 30, 60))}" if waits else ""
        within = ANSWERED + (WAITED if wait else 0.0)
        call = await self._ask(execution, "GET", f"/status/{execution.id}{wait}", within=within)
        if call.status == 200:
            is_healthy = is_healthy and world.was_healthy(execution.asked)
            world.executions.check_status(execution, call.answer, is_healthy=is_healthy)
            if call.answer["status"] == "waiting_for_human_input":
                await self._resume(execution, call.answer["current_task"])

    async def _resume(self, execution: Execution, task: str) -> None:
        if self._chance.random() < 0.1 and not self._world.is_calm:
            return  # nobody answers, until the next poll
        await trio.sleep(self._chance.uniform(0.0, 10.0))
        body: Json = {
            "execution_id": execution.id,
            "task_id": task,
            "human_feedback": "fine",
            "is_approve": True,
        }
        # 400: another client has answered, or the deadline for an answer has passed.
        await self._ask(execution, "POST", "/resume", body, refusal=400)

    async def _stop(self, execution: Execution, after: float) -> None:
        await trio.sleep(after)
        execution.stopped = True
        call = await self._ask(
            execution,
            "POST",
            f"/stop/{execution.id}",
            within=STOPPED,
            may_wait_for_disk=True,
            refusal=400,
        )
        if call.status == 200 and execution.final and execution.final["status"] != "stopped":
            self._world.fail(f"a finished execution was stopped: {execution.final}")
        if call.status == 200:
            status = await self._ask(execution, "GET", f"/status/{execution.id}")
            if status.status == 200 and status.answer["status"] != "stopped":
                self._world.fail(f"a stopped execution has the status {status.answer}")

    async def _read_events(self, execution: Execution) -> None:
        """Read all events, with a new connection after each that ends."""
        world, seen = self._world, 0
        while True:
            call = world.ask(
                "GET",
                f"/crews/{self._crew}/events/{execution.id}",
                token=execution.token,
                headers={"last-event-id": str(seen)},
            )
            try:
                await call.exchange.ended.wait()
            finally:
                call.gone.set()
            if call.exchange.status not in (0, 200, 503):
                world.fail(f"events were answered {call.exchange.status}")
            if call.exchange.status == 200:
                seen = self._check_events(execution, call, seen)
            await trio.sleep(RETRY_AFTER)

    def _check_events(self, execution: Execution, call: Call, seen: int) -> int:
        for block in call.exchange.body.decode().split("\n\n"):
            event = _parse_event(block)
            if event is None:
                continue
            number, data = event
            if number != seen + 1:
                self._world.fail(f"{execution.number}: event {number} came after {seen}: {data}")
            seen = number
        return seen

    async def _ask(
        self, execution: Execution, method: str, path: str, body: Json | None = None, **more: Any
    ) -> Call:
        """Send a request about an execution, with `more` arguments of `World.answered`."""
        path = f"/crews/{self._crew}{path}"
        return await self._world.answered(
            self.name, method, path, body, token=execution.token, **more
        )


def _parse_event(block: str) -> tuple[int, Any] | None:
    """Return an event's number and data; None when the block is incomplete."""
    lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
    if "id" not in lines or "data" not in lines:
        return None
    try:
        return int(lines["id"]), json.loads(lines["data"])
    except ValueError:
        return None  # the connection ended within the event
