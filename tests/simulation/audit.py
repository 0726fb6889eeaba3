"""Check a daemon at rest: executions and webhook calls are kept, nothing else is left."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import trio

from tests.hygiene.tasks import daemon_tasks
from tests.simulation.world import World

SAMPLE = 12
"""Finished executions whose status is asked again."""
SETTLED = 10.0
"""Seconds from an execution's end until its webhook call is made or stored in the journal."""


class Audit:
    """Checks that compare the daemon with the baseline that `record_baseline` took."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._tasks: Counter[str] = Counter()

    def record_baseline(self) -> None:
        """Record the tasks of the daemon, which nobody uses now."""
        self._tasks = daemon_tasks()

    def check_nothing_left(self) -> None:
        """Check that no task, process, folder or unfinished execution is left of clients' work."""
        world = self._world
        if (tasks := daemon_tasks()) != self._tasks:
            more, fewer = dict(tasks - self._tasks), dict(self._tasks - tasks)
            world.fail(f"at rest there are other tasks than before: {more}, not {fewer}")
        assert world.daemon is not None
        known = world.daemon.browser.status().contexts + 1  # the canary has one
        contexts = len(world.machine.browser.contexts)
        left = world.left()
        if left != (1, 1, 0) or contexts != known:
            world.fail(
                f"browsers, folders, workers at rest: {left}; {contexts} contexts, {known} known"
            )
        if followers := world.daemon.crews.executor.followers:
            world.fail(f"{followers} clients still follow executions")
        learned = trio.current_time() - SETTLED  # a client has had time to learn of the end
        if unfinished := [
            each.number
            for each in world.executions.known.values()
            if not each.final and each.answered < learned
        ]:
            world.fail(f"executions have not ended: {unfinished}")

    def check_contexts_disposed(self) -> None:
        """Check that all idle contexts have been disposed of."""
        if (contexts := len(self._world.machine.browser.contexts)) != 1:
            self._world.fail(f"{contexts} contexts are open, and only the canary's may be")

    async def check_executions_kept(self) -> None:
        """Check that the daemon knows every accepted execution and changes no final status."""
        known = list(self._world.executions.known.values())
        ended = [each for each in known if each.final]
        some = self._chance.sample(ended, min(SAMPLE, len(ended)))
        for execution in [each for each in known if not each.final] + some:
            path = f"/crews/{execution.crew}/status/{execution.id}"
            call = self._world.ask("GET", path, token=execution.token)
            if await call.wait() == 200:
                self._world.executions.check_status(execution, call.answer, is_healthy=False)
            else:
                self._world.fail(f"{execution.number}: {call.status} {call.exchange.body!r}")

    def check_ends_delivered(self) -> None:
        """Check that each webhook call for an end was made, or waits in the journal."""
        world = self._world
        notified = set[str]().union(
            *(receiver.notified for receiver in world.receivers),
            self._executions_with_pending_calls(),
        )
        for execution in world.executions.known.values():
            due = execution.seen_ended + SETTLED < trio.current_time()
            if execution.webhooks and due and execution.id not in notified:
                world.fail(
                    f"the end of {execution.number}, {execution.id}, will never be delivered"
                )

    def pending_deliveries(self) -> int:
        """Return how many webhook calls wait in the journal."""
        return int(self._query_journal("SELECT count(*) FROM deliveries")[0][0])

    def _executions_with_pending_calls(self) -> set[str]:
        """Return the ids of executions whose webhook call for the end waits in the journal."""
        rows = self._query_journal(
            "SELECT e.id FROM deliveries d JOIN executions e ON e.sequence = d.execution "
            "JOIN webhooks w ON w.number = d.webhook WHERE w.kind = 'crew'"
        )
        return {row[0] for row in rows}

    def _query_journal(self, sql: str) -> list[Any]:
        assert self._world.daemon is not None
        path = self._world.daemon.directory / "journal.sqlite3"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return database.execute(sql).fetchall()
