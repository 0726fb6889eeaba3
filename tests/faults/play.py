"""One cell, played: bring the stage to the phase, strike, and look at all that is due."""

from __future__ import annotations

import logging
import re
from collections import Counter

import trio

from tests.faults.door import Asked
from tests.faults.matrix import MOMENT, SUBMITTED, Due
from tests.faults.phases import ARMED_PHASES, PHASES, SOON, Scene
from tests.faults.stage import LOOK_EVERY, Stage, comes_about
from tests.faults.strikes import ARMED, STRIKES

NOTICED = 40.0
"""Seconds in which whatever struck is in the log; a launch that hangs takes twenty."""
RECOVERED = 60.0
"""Seconds in which the browser is there again, whatever it was."""
HONEST = 5.0 + LOOK_EVERY
"""Seconds for which readiness may be claimed of a browser that is of no use any more."""
STOPPED = 20.0


class Play:
    def __init__(
        self, cell: tuple[str, str], due: Due, stage: Stage, logs: list[logging.LogRecord]
    ) -> None:
        self.fault, self.phase = cell
        self.due = due
        self.stage = stage
        self.logs = logs
        self._restarted = Counter[str]()
        self._logged = 0

    async def run(self, nursery: trio.Nursery, at_rest: Counter[str]) -> None:
        scene = await self._strike(nursery)
        struck = trio.current_time()
        victim = scene.victim or self.stage.ask(scene.account)
        if self.fault == "client_gone":
            await self._work_ended(scene)
        scene.release()
        await self._answered(victim, struck)
        await self._others_answered(scene)
        if self.fault == "sigterm":
            await self._stopped(nursery)
        await self._noticed()
        self.stage.machine.heal()
        self.stage.portal.faults.clear()
        await self._recovered()
        await self._next(scene)
        self._check_readiness(struck)
        self._check_restarts()
        await self._check_nothing_left(at_rest)
        assert len(self._named()) == (1 if self.due.log else 0), self._warnings()

    async def _strike(self, nursery: trio.Nursery) -> Scene:
        if self.fault in ARMED:
            scene = await ARMED_PHASES[self.phase](self.stage, nursery, ARMED[self.fault])
            if self.phase == "draining":
                await self._noticed()
            return scene
        scene = await PHASES[self.phase](self.stage, nursery)
        self._restarted = Counter(self.stage.browser.restarts)
        self._logged = len(self.logs)
        STRIKES[self.fault](scene)
        return scene

    async def _answered(self, victim: Asked, struck: float) -> None:
        with trio.move_on_after(self.due.seconds + 60):
            await victim.wait()
        took = trio.current_time() - struck
        assert victim.status in self.due.statuses, f"{victim} (took {took:.2f})"
        assert took <= self.due.seconds, f"{victim} (took {took:.2f})"
        if victim.status == 200:
            (entry,) = victim.answer["mapping"].values()
            assert (entry["product"] is not None) is self.due.data, victim
        if victim.status == 503:
            assert 1 <= int(victim.exchange.answered["retry-after"]) <= 10
        if victim.status in (502, 503):
            assert victim.answer["ok"] is False

    async def _work_ended(self, scene: Scene) -> None:
        """Nothing is done for somebody who has gone: not even what is held up ends by itself."""
        status = self.stage.browser.status
        assert await comes_about(lambda: status().working <= len(scene.others), MOMENT)

    async def _others_answered(self, scene: Scene) -> None:
        """Nobody who was in front hangs."""
        for other in scene.others:
            with trio.fail_after(SOON):
                await other.wait()
            assert other.status in (200, 502), other

    async def _stopped(self, nursery: trio.Nursery) -> None:
        """It ends in order, and can be started again."""
        await self.stage.is_gone(STOPPED)
        await nursery.start(self.stage.run)

    async def _noticed(self) -> None:
        await comes_about(lambda: not self.due.log or self._named(), NOTICED)
        assert len(self._named()) == (1 if self.due.log else 0), self._warnings()

    async def _recovered(self) -> None:
        await comes_about(self._has_recovered, RECOVERED)
        assert self.stage.ready, self._warnings()

    def _has_recovered(self) -> bool:
        return self.stage.ready and self._restarts().total() >= len(self.due.restarts)

    async def _next(self, scene: Scene) -> None:
        """The next request of the same account works; of a paused one's owner, another account."""
        account = scene.account
        if self.fault == "portal_human_check":
            refused = self.stage.ask(account)
            asked = len(self.stage.network.requests)
            await refused.wait()
            assert refused.status == 502, refused
            assert len(self.stage.network.requests) == asked
            account = self.stage.account()
        asked_next = self.stage.ask(account)
        await asked_next.good(SOON)
        assert asked_next.seconds <= SUBMITTED, asked_next
        (entry,) = asked_next.answer["mapping"].values()
        assert (entry["product"] is not None) is self.due.next_data, asked_next

    def _check_readiness(self, struck: float) -> None:
        before = [ready for when, ready in self.stage.readiness if when <= struck]
        since = [ready for when, ready in self.stage.readiness if when > struck]
        assert (False in [*before[-1:], *since]) is self.due.dips, self.stage.readiness
        if self.due.dips and before[-1]:
            lost = next(when for when, ready in self.stage.readiness if when > struck and not ready)
            assert lost - struck <= HONEST, self.stage.readiness
        assert self.stage.ready

    def _check_restarts(self) -> None:
        assert self._restarts() == Counter(self.due.restarts)

    async def _check_nothing_left(self, at_rest: Counter[str]) -> None:
        await comes_about(lambda: self._at_rest(at_rest), SOON)
        tasks = self.stage.tasks()
        assert tasks == at_rest, (tasks - at_rest, at_rest - tasks)
        assert self._remains() == (1, 1, 0)

    def _at_rest(self, at_rest: Counter[str]) -> bool:
        return self.stage.tasks() == at_rest and self._remains() == (1, 1, 0)

    def _remains(self) -> tuple[int, int, int]:
        """Processes, profile folders, and contexts that the daemon knows nothing of."""
        known = self.stage.browser.status().contexts + 1  # the canary has one
        strange = len(self.stage.machine.browser.contexts) - known
        return self.stage.processes(), self.stage.folders(), strange

    def _restarts(self) -> Counter[str]:
        return +(Counter(self.stage.browser.restarts) - self._restarted)

    def _warnings(self) -> list[str]:
        since = self.logs[self._logged :]
        return [one.getMessage() for one in since if one.levelno >= logging.WARNING]

    def _named(self) -> list[str]:
        pattern = self.due.log or "."
        return [text for text in self._warnings() if re.search(pattern, text)]
