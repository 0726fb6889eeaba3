"""One cell of the matrix: bring the stage to the phase, strike, and check what is due."""

from __future__ import annotations

import logging
import re
from collections import Counter

import trio

from tests.faults.matrix import MOMENT, SUBMITTED, Due
from tests.faults.phases import ARMED_PHASES, PHASES, SOON, Scene
from tests.faults.sockets import SentRequest
from tests.faults.stage import POLL_INTERVAL, Stage, wait_until
from tests.faults.strikes import ARMED, STRIKES

NOTICED = 40.0
"""Seconds until the fault is logged; a launch that hangs takes twenty."""
RECOVERED = 60.0
"""Seconds until the browser is ready again after any fault."""
STALE_READINESS = 5.0 + POLL_INTERVAL
"""Seconds for which the daemon may report a broken browser as ready."""
STOPPED = 20.0  # seconds


class CellRun:
    def __init__(
        self, cell: tuple[str, str], due: Due, stage: Stage, logs: list[logging.LogRecord]
    ) -> None:
        self.fault, self.phase = cell
        self.due = due
        self.stage = stage
        self.logs = logs
        self._old_restarts = Counter[str]()
        self._old_records = 0

    async def run(self, nursery: trio.Nursery, at_rest: Counter[str]) -> None:
        scene = await self._strike(nursery)
        struck = trio.current_time()
        victim = scene.victim or self.stage.ask(scene.account)
        if self.fault == "client_gone":
            await self._check_work_ended(scene)
        scene.release()
        await self._check_answer(victim, struck)
        await self._check_others(scene)
        if self.fault == "sigterm":
            await self._check_stop(nursery)
        await self._check_log()
        self.stage.machine.heal()
        self.stage.portal.armed.clear()
        await self._check_recovery()
        await self._check_next(scene)
        self._check_readiness(struck)
        self._check_restarts()
        await self._check_nothing_left(at_rest)
        assert len(self._matching_warnings()) == (1 if self.due.log else 0), self._warnings()

    async def _strike(self, nursery: trio.Nursery) -> Scene:
        if self.fault in ARMED:
            scene = await ARMED_PHASES[self.phase](self.stage, nursery, ARMED[self.fault])
            if self.phase == "draining":
                await self._check_log()
            return scene
        scene = await PHASES[self.phase](self.stage, nursery)
        self._old_restarts = Counter(self.stage.browser.restarts)
        self._old_records = len(self.logs)
        STRIKES[self.fault](scene)
        return scene

    async def _check_answer(self, victim: SentRequest, struck: float) -> None:
        with trio.move_on_after(self.due.seconds + 60):
            await victim.wait()
        took = trio.current_time() - struck
        assert victim.status in self.due.statuses, f"{victim} (took {took:.2f})"
        assert took <= self.due.seconds, f"{victim} (took {took:.2f})"
        if victim.status == 200:
            (entry,) = victim.answer["mapping"].values()
            assert (entry["product"] is not None) is self.due.data, victim
        if victim.status == 503:
            assert 1 <= int(victim.exchange.response_headers["retry-after"]) <= 10
        if victim.status in (502, 503):
            assert victim.answer["ok"] is False

    async def _check_work_ended(self, scene: Scene) -> None:
        """Check that the work for a client that has left ends, even while the gate is closed."""
        status = self.stage.browser.status
        assert await wait_until(lambda: status().jobs_running <= len(scene.others), MOMENT)

    async def _check_others(self, scene: Scene) -> None:
        """Check that the requests before the victim are answered."""
        for other in scene.others:
            with trio.fail_after(SOON):
                await other.wait()
            assert other.status in (200, 502), other

    async def _check_stop(self, nursery: trio.Nursery) -> None:
        """Check that the daemon stops and leaves nothing; then start it again."""
        await self.stage.wait_gone(STOPPED)
        await nursery.start(self.stage.run)

    async def _check_log(self) -> None:
        await wait_until(lambda: not self.due.log or self._matching_warnings(), NOTICED)
        assert len(self._matching_warnings()) == (1 if self.due.log else 0), self._warnings()

    async def _check_recovery(self) -> None:
        await wait_until(self._has_recovered, RECOVERED)
        assert self.stage.ready, self._warnings()

    def _has_recovered(self) -> bool:
        return self.stage.ready and self._restarts().total() >= len(self.due.restarts)

    async def _check_next(self, scene: Scene) -> None:
        """Check that the next request succeeds.

        It is the same account's, or another's if the account is paused.
        """
        account = scene.account
        if self.fault == "portal_human_check":
            refused = self.stage.ask(account)
            asked = len(self.stage.network.requests)
            await refused.wait()
            assert refused.status == 502, refused
            assert len(self.stage.network.requests) == asked
            account = self.stage.account()
        asked_next = self.stage.ask(account)
        await asked_next.expect_ok(SOON)
        assert asked_next.seconds <= SUBMITTED, asked_next
        (entry,) = asked_next.answer["mapping"].values()
        assert (entry["product"] is not None) is self.due.next_data, asked_next

    def _check_readiness(self, struck: float) -> None:
        before = [ready for when, ready in self.stage.readiness if when <= struck]
        since = [ready for when, ready in self.stage.readiness if when > struck]
        assert (False in [*before[-1:], *since]) is self.due.unready, self.stage.readiness
        if self.due.unready and before[-1]:
            lost = next(when for when, ready in self.stage.readiness if when > struck and not ready)
            assert lost - struck <= STALE_READINESS, self.stage.readiness
        assert self.stage.ready

    def _check_restarts(self) -> None:
        assert self._restarts() == Counter(self.due.restarts)

    async def _check_nothing_left(self, at_rest: Counter[str]) -> None:
        await wait_until(lambda: self._at_rest(at_rest), SOON)
        tasks = self.stage.tasks()
        assert tasks == at_rest, (tasks - at_rest, at_rest - tasks)
        assert self._leftovers() == (1, 1, 0)

    def _at_rest(self, at_rest: Counter[str]) -> bool:
        return self.stage.tasks() == at_rest and self._leftovers() == (1, 1, 0)

    def _leftovers(self) -> tuple[int, int, int]:
        """Return the numbers of processes, profile folders and unknown browser contexts."""
        known = self.stage.browser.status().contexts + 1  # the canary has one
        strange = len(self.stage.machine.browser.contexts) - known
        return self.stage.processes(), self.stage.folders(), strange

    def _restarts(self) -> Counter[str]:
        return +(Counter(self.stage.browser.restarts) - self._old_restarts)

    def _warnings(self) -> list[str]:
        since = self.logs[self._old_records :]
        return [one.getMessage() for one in since if one.levelno >= logging.WARNING]

    def _matching_warnings(self) -> list[str]:
        pattern = self.due.log or "."
        return [text for text in self._warnings() if re.search(pattern, text)]
