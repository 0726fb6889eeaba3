"""What becomes of an execution that was interrupted, by the rule of its crew (`on_restart`).

It is put back to its beginning, to run again from there, or it ends.
"""

from __future__ import annotations

from functools import partial

from smartlinkd.config.crews import OnRestart
from smartlinkd.crews.ledger import REQUEUED, about, requeued
from smartlinkd.crews.without_worker import WithoutWorker
from smartlinkd.crews.workplace import Workplace
from smartlinkd.errors import Invalid
from smartlinkd.store.model import ExecutionState, Status, Summary

MAX_RERUNS = 3
"""Times that an execution is run again: what ends the daemon each time must not do so for ever."""

INTERRUPTED = "the daemon ended, or was restarted, while it was running"
TOO_OFTEN = f"{INTERRUPTED}, as in {MAX_RERUNS} runs before"


class Again:
    """Puts back what was interrupted, or has `without_worker` end it."""

    def __init__(self, workplace: Workplace, without_worker: WithoutWorker) -> None:
        self._workplace = workplace
        self._journal = workplace.journal
        self._without_worker = without_worker

    async def begin(self, on_restart: OnRestart, interrupted: Summary) -> bool:
        """Put it back to its beginning, or end it, as its crew says. Whether it is to run again."""
        rerun = on_restart == "rerun"
        if not rerun or await self._reruns(interrupted.id) >= MAX_RERUNS:
            why = TOO_OFTEN if rerun else INTERRUPTED
            await self._without_worker.end(interrupted.id, Status.INTERRUPTED, why)
            return False
        execution = await self._workplace.read(interrupted.id)
        entry = requeued(about(execution), self._workplace.wall())
        try:
            await self._workplace.record(execution.id, ExecutionState.PENDING, entry)
        except Invalid as fault:  # it has as many events or webhook calls as one may have
            why = f"{INTERRUPTED}, and cannot be run again: {fault}"
            await self._without_worker.end(execution.id, Status.INTERRUPTED, why)
            return False
        return True

    async def _reruns(self, execution_id: str) -> int:
        """Times that it was put back: an event that tells of one that had not begun has data."""
        return await self._workplace.insist(
            f"execution {execution_id}",
            partial(self._journal.count_bare_events, execution_id, REQUEUED),
        )
