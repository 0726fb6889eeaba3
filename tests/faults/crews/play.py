"""One cell of the matrix: bring the stage to the phase, strike, and check what is due."""

from __future__ import annotations

import logging
import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

import trio

from smartlinkd.sandbox.session import cookie_header
from tests.fakes.internet import answer
from tests.faults.crews.client import Client
from tests.faults.crews.matrix import MOMENT, Due
from tests.faults.crews.phases import PHASES, Scene
from tests.faults.crews.stage import CrewStage
from tests.faults.crews.strikes import STRIKES
from tests.faults.phases import SOON
from tests.faults.stage import POLL_INTERVAL, wait_until

NOTICED = 70.0
"""Seconds until the fault is logged. A silent receiver takes 30 s for every two calls."""
SLACK = 60.0
"""Seconds beyond the due time after which a cell gives up and reports how long it took."""
CALLS_INTERVAL = 1.0
"""Seconds between two polls for due calls, which some cells do for an hour."""
STOPPED = 120.0
"""Seconds until a daemon has ended, including its attempts to go on."""


@dataclass(frozen=True)
class Resources:
    """The resources of a daemon whose work is done, waiting for the next kickoff."""

    tasks: Counter[str]
    descriptors: int


class CellRun:
    def __init__(
        self, cell: tuple[str, str], due: Due, stage: CrewStage, logs: list[logging.LogRecord]
    ) -> None:
        self.fault, self.phase = cell
        self.due = due
        self.stage = stage
        self.logs = logs
        self._before = stage.descriptors()
        self._scene: Scene
        self._struck_at = 0.0
        self._logged = trio.Event()

    async def run(self, nursery: trio.Nursery, at_rest: Resources) -> None:
        scene = self._scene = await PHASES[self.phase](self.stage, nursery)
        self.logs.clear()
        restarts = self._restarts()
        self._struck_at = trio.current_time()
        STRIKES[self.fault](scene)
        if scene.victim is None:
            await trio.sleep(POLL_INTERVAL)
            scene.victim = scene.kick_off()
        if self.fault == "client_gone":
            await self._check_work_ended()
        if not self.due.ends_daemon or scene.gates:
            scene.go_on()
        nursery.start_soon(self._wait_for_log)
        await self._check_answer()
        if self.due.ends_daemon:
            await self._check_daemon_end(nursery)
            restarts = {}
        with trio.fail_after(NOTICED):
            await self._logged.wait()
        await self._ensure_accepted()
        await self._check_end()
        self._heal()
        await self._check_others()
        await self._check_next()
        await self._check_calls()
        self._check_readiness()
        assert self._restarts(since=restarts) == dict(self.due.restarts)
        await self._check_nothing_left(at_rest)
        self._check_log()

    # Checks, in their order

    async def _check_answer(self) -> None:
        victim = self._scene.victim
        assert victim is not None
        with trio.move_on_after(self.due.seconds + SLACK):
            await victim.wait()
        took = self._elapsed()
        if victim.status == 200 and not self._scene.kickoff_id:
            self._scene.kickoff_id = victim.answer["kickoff_id"]
        assert victim.status in self.due.statuses, f"{victim} (took {took:.2f})"
        assert took <= self.due.seconds, f"{victim} (took {took:.2f})"
        if victim.status == 503:
            assert int(victim.exchange.response_headers["retry-after"]) >= 1
            assert victim.answer["message"]

    async def _check_work_ended(self) -> None:
        """Check that the daemon ends the work for a client that has left."""
        assert await wait_until(lambda: not self.stage.crews.executor.followers, MOMENT)

    async def _check_daemon_end(self, nursery: trio.Nursery) -> None:
        """Check that the daemon ends and leaves nothing; then start it again."""
        await self.stage.wait_gone(STOPPED)
        assert (self.stage.escalated is not None) is self.due.escalates, self.stage.escalated
        self.stage.heal()
        await nursery.start(self.stage.run)
        await self.stage.until_ready(SOON)

    async def _wait_for_log(self) -> None:
        """Wait for the due log record, if any; then remove the fault, unless it escalates."""
        await wait_until(lambda: not self.due.log or self._matching_records(), NOTICED)
        assert bool(self._matching_records()) is bool(self.due.log), self._records()
        if self.due.log and not self.due.escalates:
            self._heal()
        self._logged.set()

    async def _ensure_accepted(self) -> None:
        """Send a refused kickoff again, as a client does."""
        scene = self._scene
        if not scene.kickoff_id:
            scene.kickoff_id = (await scene.kick_off().expect_ok(SOON))["kickoff_id"]

    async def _check_end(self) -> None:
        scene = self._scene
        found = await scene.client.wait_ended(scene.kickoff_id, self.due.by + SLACK)
        assert found["status"] in self.due.ends, found
        ended = datetime.fromisoformat(found["finished_at"]).timestamp() - self.stage.wall.offset
        took = min(ended, trio.current_time()) - self._struck_at
        assert took <= self.due.by, (took, found)
        assert re.search(self.due.error, found["error"] or ""), found
        assert bool(found["error"]) is (found["status"] != "completed")

    async def _check_others(self) -> None:
        """Check that the execution before the victim has ended and the bystander completes."""
        scene = self._scene
        if scene.other:
            front = await scene.client.wait_ended(scene.other, SOON)
            assert front["status"] in ("completed", "interrupted"), front
        again = Client(self.stage, "again")
        if self.due.bystander_completes:
            assert await wait_until(self._bystander_waits, SOON)
            self.stage.workers.worker_of(scene.bystander).run_instead("done b", "result fine")
        beside = await again.wait_ended(scene.bystander, SOON)
        assert beside["status"] == ("completed" if self.due.bystander_completes else "error"), (
            beside
        )

    async def _check_next(self) -> None:
        """Check that the next kickoff succeeds at once, and that no other execution exists."""
        scene = self._scene
        began = trio.current_time()
        kickoff_id = await scene.client.start()
        found = await scene.client.wait_ended(kickoff_id, SOON)
        assert found["status"] == "completed", found
        assert trio.current_time() - began <= MOMENT, found
        known = {
            each["kickoff_id"] for each in (await scene.client.get("/executions"))["executions"]
        }
        assert known == {kickoff_id, scene.kickoff_id, scene.other} - {""}
        for path in ("/", "/inputs"):
            asked = scene.client.ask("GET", path)
            assert await asked.wait() == 200, asked
        # A stored cookie is lost with a process, and its descriptor counts.
        cookie = {"cookie": cookie_header(self.stage.account())}
        await self.stage.request("POST", "/api/sync-cookie", cookie).expect_ok()

    async def _check_calls(self) -> None:
        """Check that all events were delivered in order, or the delivery was given up."""
        scene = self._scene
        with trio.move_on_after(self.due.called):
            while await self._has_due_calls():  # noqa: ASYNC110 - no event is set
                await trio.sleep(CALLS_INTERVAL)
        assert not await self._has_due_calls()
        events = await self._events()
        taken = {
            call.id: call for call in scene.receiver.taken if scene.kickoff_id in str(call.content)
        }
        told = [call.body["events"][0]["type"] for call in taken.values() if call.path == "/stream"]
        ends = [call.body for call in taken.values() if call.path == "/end"]
        if self.due.is_delivered:
            assert told == events
            assert len(ends) == 1
        else:
            assert len(told) < len(events)

    def _check_readiness(self) -> None:
        since = [ready for when, ready in self.stage.readiness if when > self._struck_at]
        assert self.stage.ready
        assert self.due.ends_daemon or False not in since, self.stage.readiness

    async def _check_nothing_left(self, at_rest: Resources) -> None:
        await wait_until(lambda: self._at_rest() == at_rest, SOON)
        found = self._at_rest()
        assert found.tasks == at_rest.tasks, (
            found.tasks - at_rest.tasks,
            at_rest.tasks - found.tasks,
        )
        assert found == at_rest
        assert (self.stage.processes(), self.stage.folders()) == (1, 1)
        assert self.stage.crews.executor.followers == 0

    def _check_log(self) -> None:
        named = self._matching_records()
        assert len(named) == (self.due.records if self.due.log else 0), named
        if not self.due.log:
            # Each cell syncs the cookie of an account of its own.
            quiet = ("INFO", "WARNING the stored cookie is another account's now")
            loud = [one for one in self._records() if not one.startswith(quiet)]
            assert not loud, loud

    # Helpers

    def _heal(self) -> None:
        stage, receiver = self.stage, self._scene.receiver
        stage.heal()
        receiver.heal(answer(200, Connection="close"))

    def _bystander_waits(self) -> bool:
        workers = self.stage.workers.running
        return any(
            each.execution == self._scene.bystander and each.step == "hear" for each in workers
        )

    def _elapsed(self) -> float:
        return trio.current_time() - self._struck_at

    def _restarts(self, since: dict[str, int] | None = None) -> dict[str, int]:
        found = {name: part.restarts for name, part in self.stage.parts().items()}
        before = since or {}
        assert all(part.state == "running" for part in self.stage.parts().values()) or since is None
        return {
            name: n - before.get(name, 0) for name, n in found.items() if n != before.get(name, 0)
        }

    def _at_rest(self) -> Resources:
        return Resources(self.stage.tasks(), self.stage.descriptors() - self._before)

    async def _events(self) -> list[str]:
        """Return the types of the execution's events."""
        found: list[str] = []
        journal = self.stage.crews.store
        while page := await journal.events(self._scene.kickoff_id, after=len(found), limit=500):
            found += [event.type for event in page]
        return found

    async def _has_due_calls(self) -> bool:
        """True if a webhook call is still due, now or later."""
        ever = self.stage.wall.moment() + timedelta(days=9)
        return bool(await self.stage.crews.store.due_deliveries(ever, 1))

    def _records(self) -> list[str]:
        return [
            f"{one.levelname} {one.getMessage()}"
            + (f": {one.exc_info[1]!r}" if one.exc_info else "")
            for one in self.logs
        ]

    def _matching_records(self) -> list[str]:
        if not self.due.log:
            return []
        pattern = self.due.log.replace("{id}", self._scene.kickoff_id or "[0-9a-f-]+")
        return [text for text in self._records() if re.search(pattern, text)]
