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
from tests.faults.stage import LOOK_EVERY, comes_about

NOTICED = 70.0
"""Seconds until the fault is logged. A silent receiver takes 30 s for every two calls."""
SLACK = 60.0
"""Seconds beyond the due time after which a cell gives up and reports how long it took."""
OWED_FOR = 1.0
"""Seconds between two polls for due calls, which some cells do for an hour."""
STOPPED = 120.0
"""Seconds until a daemon has ended, including its attempts to go on."""


@dataclass(frozen=True)
class Rest:
    """The resources of a daemon whose work is done, waiting for the next kickoff."""

    tasks: Counter[str]
    descriptors: int


class Play:
    def __init__(
        self, cell: tuple[str, str], due: Due, stage: CrewStage, logs: list[logging.LogRecord]
    ) -> None:
        self.fault, self.phase = cell
        self.due = due
        self.stage = stage
        self.logs = logs
        self._before = stage.descriptors()
        self._scene: Scene
        self._struck = 0.0
        self._noticed = trio.Event()

    async def run(self, nursery: trio.Nursery, at_rest: Rest) -> None:
        scene = self._scene = await PHASES[self.phase](self.stage, nursery)
        self.logs.clear()
        restarts = self._restarts()
        self._struck = trio.current_time()
        STRIKES[self.fault](scene)
        if scene.victim is None:
            await trio.sleep(LOOK_EVERY)
            scene.victim = scene.kick_off()
        if self.fault == "client_gone":
            await self._is_let_go()
        if not self.due.ends_daemon or scene.gates:
            scene.go_on()
        nursery.start_soon(self._notice)
        await self._answered()
        if self.due.ends_daemon:
            await self._daemon_ended(nursery)
            restarts = {}
        with trio.fail_after(NOTICED):
            await self._noticed.wait()
        await self._known()
        await self._ended()
        self._heal()
        await self._others_ended()
        await self._next()
        await self._calls_made()
        self._check_readiness()
        assert self._restarts(since=restarts) == dict(self.due.restarts)
        await self._check_nothing_left(at_rest)
        self._check_log()

    # Checks, in their order

    async def _answered(self) -> None:
        victim = self._scene.victim
        assert victim is not None
        with trio.move_on_after(self.due.seconds + SLACK):
            await victim.wait()
        took = self._since()
        if victim.status == 200 and not self._scene.kickoff_id:
            self._scene.kickoff_id = victim.answer["kickoff_id"]
        assert victim.status in self.due.statuses, f"{victim} (took {took:.2f})"
        assert took <= self.due.seconds, f"{victim} (took {took:.2f})"
        if victim.status == 503:
            assert int(victim.exchange.answered["retry-after"]) >= 1
            assert victim.answer["message"]

    async def _is_let_go(self) -> None:
        """Check that the daemon ends the work for a client that has left."""
        assert await comes_about(lambda: not self.stage.crews.executor.followers, MOMENT)

    async def _daemon_ended(self, nursery: trio.Nursery) -> None:
        """Check that the daemon ends and leaves nothing; then start it again."""
        await self.stage.is_gone(STOPPED)
        assert (self.stage.escalated is not None) is self.due.escalates, self.stage.escalated
        self.stage.heal()
        await nursery.start(self.stage.run)
        await self.stage.until_ready(SOON)

    async def _notice(self) -> None:
        """Remove the fault when it is logged or has ended the daemon."""
        await comes_about(lambda: not self.due.log or self._named(), NOTICED)
        assert bool(self._named()) is bool(self.due.log), self._told()
        if self.due.log and not self.due.escalates:
            self._heal()
        self._noticed.set()

    async def _known(self) -> None:
        """Send a refused kickoff again, as a client does."""
        scene = self._scene
        if not scene.kickoff_id:
            scene.kickoff_id = (await scene.kick_off().good(SOON))["kickoff_id"]

    async def _ended(self) -> None:
        scene = self._scene
        found = await scene.client.ended(scene.kickoff_id, self.due.by + SLACK)
        assert found["status"] in self.due.ends, found
        ended = datetime.fromisoformat(found["finished_at"]).timestamp() - self.stage.wall.offset
        took = min(ended, trio.current_time()) - self._struck
        assert took <= self.due.by, (took, found)
        assert re.search(self.due.error, found["error"] or ""), found
        assert bool(found["error"]) is (found["status"] != "completed")

    async def _others_ended(self) -> None:
        """Check that the execution before the victim has ended and the bystander completes."""
        scene = self._scene
        if scene.other:
            front = await scene.client.ended(scene.other, SOON)
            assert front["status"] in ("completed", "interrupted"), front
        again = Client(self.stage, "again")
        if self.due.spares_others:
            assert await comes_about(self._bystander_hears, SOON)
            self.stage.workers.of(scene.bystander).do("done b", "result fine")
        beside = await again.ended(scene.bystander, SOON)
        assert beside["status"] == ("completed" if self.due.spares_others else "error"), beside

    async def _next(self) -> None:
        """Check that the next kickoff succeeds at once, and that no other execution exists."""
        scene = self._scene
        began = trio.current_time()
        kickoff_id = await scene.client.started()
        found = await scene.client.ended(kickoff_id, SOON)
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
        await self.stage.request("POST", "/api/sync-cookie", cookie).good()

    async def _calls_made(self) -> None:
        """Check that all events were delivered in order, or the delivery was given up."""
        scene = self._scene
        with trio.move_on_after(self.due.called):
            while await self._owed():  # noqa: ASYNC110 - no event is set
                await trio.sleep(OWED_FOR)
        assert not await self._owed()
        events = await self._events()
        taken = {
            call.id: call for call in scene.receiver.taken if scene.kickoff_id in str(call.content)
        }
        told = [call.body["events"][0]["type"] for call in taken.values() if call.path == "/stream"]
        ends = [call.body for call in taken.values() if call.path == "/end"]
        if self.due.told:
            assert told == events
            assert len(ends) == 1
        else:
            assert len(told) < len(events)

    def _check_readiness(self) -> None:
        since = [ready for when, ready in self.stage.readiness if when > self._struck]
        assert self.stage.ready
        assert self.due.ends_daemon or False not in since, self.stage.readiness

    async def _check_nothing_left(self, at_rest: Rest) -> None:
        await comes_about(lambda: self._at_rest() == at_rest, SOON)
        found = self._at_rest()
        assert found.tasks == at_rest.tasks, (
            found.tasks - at_rest.tasks,
            at_rest.tasks - found.tasks,
        )
        assert found == at_rest
        assert (self.stage.processes(), self.stage.folders()) == (1, 1)
        assert self.stage.crews.executor.followers == 0

    def _check_log(self) -> None:
        named = self._named()
        assert len(named) == (self.due.records if self.due.log else 0), named
        if not self.due.log:
            # Each cell syncs the cookie of an account of its own.
            quiet = ("INFO", "WARNING the stored cookie is another account's now")
            loud = [one for one in self._told() if not one.startswith(quiet)]
            assert not loud, loud

    # Helpers

    def _heal(self) -> None:
        stage, receiver = self.stage, self._scene.receiver
        stage.heal()
        receiver.heal(answer(200, Connection="close"))

    def _bystander_hears(self) -> bool:
        workers = self.stage.workers.running
        return any(
            each.execution == self._scene.bystander and each.step == "hear" for each in workers
        )

    def _since(self) -> float:
        return trio.current_time() - self._struck

    def _restarts(self, since: dict[str, int] | None = None) -> dict[str, int]:
        found = {name: part.restarts for name, part in self.stage.parts().items()}
        before = since or {}
        assert all(part.state == "running" for part in self.stage.parts().values()) or since is None
        return {
            name: n - before.get(name, 0) for name, n in found.items() if n != before.get(name, 0)
        }

    def _at_rest(self) -> Rest:
        return Rest(self.stage.tasks(), self.stage.descriptors() - self._before)

    async def _events(self) -> list[str]:
        """Return the types of the execution's events."""
        found: list[str] = []
        journal = self.stage.crews.store
        while page := await journal.events(self._scene.kickoff_id, after=len(found), limit=500):
            found += [event.type for event in page]
        return found

    async def _owed(self) -> bool:
        """True if a webhook call is still due, now or later."""
        ever = self.stage.wall.moment() + timedelta(days=9)
        return bool(await self.stage.crews.store.due_deliveries(ever, 1))

    def _told(self) -> list[str]:
        return [
            f"{one.levelname} {one.getMessage()}"
            + (f": {one.exc_info[1]!r}" if one.exc_info else "")
            for one in self.logs
        ]

    def _named(self) -> list[str]:
        if not self.due.log:
            return []
        pattern = self.due.log.replace("{id}", self._scene.kickoff_id or "[0-9a-f-]+")
        return [text for text in self._told() if re.search(pattern, text)]
