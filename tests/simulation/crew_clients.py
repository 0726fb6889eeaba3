"""People who kick off crews: they follow what they have begun, answer what they are asked, and
stop what they do not want any more."""

from __future__ import annotations

import json
import random
from typing import Any

import trio

from tests.fakes.network import Json
from tests.simulation.calls import Call
from tests.simulation.crews import bad_script, good_script
from tests.simulation.executions import Execution
from tests.simulation.receivers import fields
from tests.simulation.world import ANSWERED, World

WAITED = 60.0
"""Seconds that `?wait=` waits, at the most."""
STOPPED = 90.0
"""Seconds in which somebody who stops an execution gives up waiting."""
TRIES = 40
"""Of one kickoff, while the daemon is down or full."""
COME_AGAIN = 4.0
EVERY = 400.0


class CrewClient:
    """One of them, with the tokens of a crew."""

    def __init__(self, name: str, crew: str, world: World, chance: random.Random) -> None:
        self.name = name
        self._crew = crew
        self._world = world
        self._chance = chance
        self._every = chance.uniform(0.5, 3.0) * EVERY
        self._good = chance.uniform(0.3, 1.0)
        self._key = chance.random() < 0.8
        self._follows = chance.choice(("waits", "polls", "events"))

    async def live(self) -> None:
        world = self._world
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._chance.expovariate(world.bustle / self._every))
                await world.open_hours()
                burst = self._chance.random() < 0.1 and not world.calm
                for _ in range(self._chance.randint(2, 8) if burst else 1):
                    nursery.start_soon(self.kick_off)

    async def kick_off(self) -> None:
        """One execution, to its end."""
        world = self._world
        with world.busy():
            execution = self._new()
            if await self._accepted(execution) and not await self._leaves():
                world.log.note(f"{self.name}: {execution.number} is {execution.id}")
                await self._see_through(execution)

    def _new(self) -> Execution:
        world, chance = self._world, self._chance
        number = len(world.executions.by_number) + 1
        good = world.calm or chance.random() < self._good
        item = 700_000_000 + number
        script = good_script(self._crew, number, chance, item) if good else bad_script(chance)
        world.books.crew_wants(script.items)
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
            **(fields(execution.number) if execution.webhooks else {}),
        }
        headers = {"idempotency-key": f"key-{execution.number}"} if self._key else {}
        for _ in range(TRIES if self._key else 1):
            call = await self._ask(execution, "POST", "/kickoff", body, headers=headers)
            if call.status == 200:
                world.executions.accepted(execution, call.answer["kickoff_id"])
                world.log.counts["kickoffs"] += 1
                return True
            if call.status not in (0, 503):
                world.broken(f"a kickoff was answered {call.status}: {call.exchange.body!r}")
            await trio.sleep(COME_AGAIN)
        return False

    async def _leaves(self) -> bool:
        """Whether they do not care what becomes of it."""
        await trio.lowlevel.checkpoint()
        return self._chance.random() < 0.1 and not self._world.calm

    async def _see_through(self, execution: Execution) -> None:
        world, chance = self._world, self._chance
        async with trio.open_nursery() as nursery:
            if chance.random() < 0.15 and not world.calm:
                nursery.start_soon(self._stop, execution, chance.uniform(0.0, 30.0))
            if self._follows == "events":
                nursery.start_soon(self._read_events, execution)
            while not execution.final:
                await self._look(execution)
                await trio.sleep(chance.uniform(2.0, 15.0))
            nursery.cancel_scope.cancel()

    async def _look(self, execution: Execution) -> None:
        world = self._world
        fine = world.was_fine(execution.asked)
        # Whoever may be asked something looks more often: a question ends no wait.
        waits = self._follows == "waits" and not execution.script.asks
        wait = f"?wait={self._chance.choice((5, 30, 60))}" if waits else ""
        within = ANSWERED + (WAITED if wait else 0.0)
        call = await self._ask(execution, "GET", f"/status/{execution.id}{wait}", within=within)
        if call.status == 200:
            fine = fine and world.was_fine(execution.asked)
            world.executions.seen(execution, call.answer, fine=fine)
            if call.answer["status"] == "waiting_for_human_input":
                await self._resume(execution, call.answer["current_task"])
        elif call.status not in (0, 503):
            world.broken(
                f"execution {execution.number} was accepted, and its status is {call.status}: "
                f"{call.exchange.body!r}"
            )

    async def _resume(self, execution: Execution, task: str) -> None:
        if self._chance.random() < 0.1 and not self._world.calm:
            return  # nobody is there
        await trio.sleep(self._chance.uniform(0.0, 10.0))
        body: Json = {
            "execution_id": execution.id,
            "task_id": task,
            "human_feedback": "fine",
            "is_approve": True,
        }
        call = await self._ask(execution, "POST", "/resume", body)
        # 400: it does not wait any more. Others of its crew may have answered it, or its deadline.
        if call.status not in (0, 200, 400, 503):
            self._world.broken(f"an answer was answered {call.status}: {call.exchange.body!r}")

    async def _stop(self, execution: Execution, after: float) -> None:
        await trio.sleep(after)
        execution.stopped = True
        call = await self._ask(execution, "POST", f"/stop/{execution.id}", within=STOPPED)
        if call.status not in (0, 200, 400, 503):
            self._world.broken(f"a stop was answered {call.status}: {call.exchange.body!r}")
        if call.status == 200 and execution.final and execution.final["status"] != "stopped":
            self._world.broken(f"it was stopped, and had ended as {execution.final}")
        if call.status == 200:
            status = await self._ask(execution, "GET", f"/status/{execution.id}")
            if status.status == 200 and status.answer["status"] != "stopped":
                self._world.broken(f"it was stopped, and now it is {status.answer}")

    async def _read_events(self, execution: Execution) -> None:
        """All of them, with a new connection when one has ended."""
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
                world.broken(f"events were answered {call.exchange.status}")
            if call.exchange.status == 200:
                seen = self._check_events(execution, call, seen)
            await trio.sleep(COME_AGAIN)

    def _check_events(self, execution: Execution, call: Call, seen: int) -> int:
        for block in call.exchange.body.decode().split("\n\n"):
            event = _event(block)
            if event is None:
                continue
            number, data = event
            if number != seen + 1:
                self._world.broken(f"{execution.number}: event {number} came after {seen}: {data}")
            seen = number
        return seen

    async def _ask(
        self,
        execution: Execution,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        headers: dict[str, str] | None = None,
        within: float = ANSWERED,
    ) -> Call:
        return await self._world.answered(
            self.name,
            method,
            f"/crews/{self._crew}{path}",
            body,
            token=execution.token,
            headers=headers,
            within=within,
            may_wait_for_disk=within == STOPPED,
        )


def _event(block: str) -> tuple[int, Any] | None:
    """Of a stream: its number and its data, when it is whole."""
    lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
    if "id" not in lines or "data" not in lines:
        return None
    try:
        return int(lines["id"]), json.loads(lines["data"])
    except ValueError:
        return None  # cut off in the midst of it
