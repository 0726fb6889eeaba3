"""The books are closed: is all there that was promised, and nothing that should be gone?"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import trio

from tests.simulation.calls import Call
from tests.simulation.executions import Execution
from tests.simulation.world import World

SAMPLE = 12
"""Executions that ended long ago, and are looked at again."""
SETTLED = 10.0
"""Seconds from an end to a call that tells of it, or to one that is noted as owed."""


class Audit:
    """See above. It knows what a healthy daemon has, from `learn`."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._tasks: Counter[str] = Counter()

    def learn(self) -> None:
        """What there is now, nobody having asked for anything, is what there should be."""
        self._tasks = self._world.tasks()

    def nothing_left(self) -> None:
        """Of anybody's work, when nobody has any."""
        world = self._world
        tasks = world.tasks()
        if tasks != self._tasks:
            more, fewer = dict(tasks - self._tasks), dict(self._tasks - tasks)
            world.broken(f"at rest there are other tasks than before: {more}, not {fewer}")
        assert world.life is not None
        known = world.life.browser.status().contexts + 1  # the canary has one
        contexts = len(world.machine.browser.contexts)
        left = (len(world.machine.running), world.folders(), world.workers.count())
        if left != (1, 1, 0) or contexts != known:
            world.broken(f"left at rest: {left}; {contexts} contexts, {known} known")
        if followers := world.life.crews.executor.followers:
            world.broken(f"{followers} clients still follow executions")
        if unended := [each.number for each in world.executions.unended() if self._ought(each)]:
            world.broken(f"executions have not ended: {unended}")

    def only_the_canary(self) -> None:
        """Contexts that nobody uses are gone by now."""
        if (contexts := len(self._world.machine.browser.contexts)) != 1:
            self._world.broken(f"{contexts} contexts are there, and one is the canary's")

    async def nothing_forgotten(self) -> None:
        """Every execution that was accepted is known, and stays as it has ended."""
        known = list(self._world.executions.known.values())
        ended = [each for each in known if each.final]
        some = self._chance.sample(ended, min(SAMPLE, len(ended)))
        for execution in [each for each in known if not each.final] + some:
            call = self._status(execution)
            if await call.wait() == 200:
                self._world.executions.seen(execution, call.answer, fine=False)
            else:
                self._world.broken(f"{execution.number}: {call.status} {call.exchange.body!r}")

    def nothing_untold(self) -> None:
        """Every end was told, or is noted to be told."""
        world = self._world
        told = set[str]().union(*(receiver.told for receiver in world.receivers), self._owed())
        for execution in world.executions.known.values():
            due = execution.seen_ended + SETTLED < trio.current_time()
            if execution.webhooks and due and execution.id not in told:
                world.broken(f"the end of {execution.number}, {execution.id}, will never be told")

    def owed(self) -> int:
        """How many webhook calls are."""
        return int(self._journal("SELECT count(*) FROM deliveries")[0][0])

    def _owed(self) -> set[str]:
        """Executions of which the end is still to be told."""
        rows = self._journal(
            "SELECT e.id FROM deliveries d JOIN executions e ON e.sequence = d.execution "
            "JOIN webhooks w ON w.number = d.webhook WHERE w.kind = 'crew'"
        )
        return {row[0] for row in rows}

    def _journal(self, sql: str) -> list[Any]:
        assert self._world.life is not None
        path = self._world.life.directory / "journal.sqlite3"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as journal:
            return journal.execute(sql).fetchall()

    def _status(self, execution: Execution) -> Call:
        path = f"/crews/{execution.crew}/status/{execution.id}"
        return self._world.ask("GET", path, token=execution.token)

    @staticmethod
    def _ought(execution: Execution) -> bool:
        """Whether somebody has looked for its end."""
        return execution.answered + SETTLED < trio.current_time()
