"""Executions that end without a worker: interrupted, stopped, or of a crew that is gone.

The problem: to write that down takes until the disk takes it. Meanwhile whoever looks for something
to run finds them in the journal, unfinished, and whoever stops one wants to know when it has ended.

The choice: they are known by their ids from when it is decided until it is written down.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from smartlinkd.crews.ending import failure
from smartlinkd.crews.ledger import about
from smartlinkd.crews.workplace import LastEntries, Workplace
from smartlinkd.store.errors import AlreadyFinished
from smartlinkd.store.model import Status

logger = logging.getLogger(__name__)


class BeingEnded:
    """One of them. `over` is set when its end is written down, and is in `outcome`; or when it is
    not going to be."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.outcome: Status | None = None


class WithoutWorker:
    """Those that are being ended. What its owner did not ask for is ended by tasks in `errands`:
    cut short, it is found undone. A stop has a little time more, among the `last_entries`."""

    def __init__(
        self, workplace: Workplace, *, errands: trio.Nursery, last_entries: LastEntries
    ) -> None:
        self._workplace = workplace
        self._errands = errands
        self._last_entries = last_entries
        self._under_way: dict[str, BeingEnded] = {}

    @property
    def ids(self) -> set[str]:
        """Of those whose end is not written down yet."""
        return set(self._under_way)

    def ending(self, execution_id: str) -> BeingEnded | None:
        """What becomes of this one; None when it is not being ended."""
        return self._under_way.get(execution_id)

    def end_all(self, ids: Sequence[str], status: Status, why: str) -> None:
        """End these, one by one. From now on nobody takes them up."""
        self._under_way.update({each: BeingEnded() for each in ids})
        self._errands.start_soon(self._end_each, ids, status, why)

    def stop(self, execution_id: str, why: str) -> None:
        """As above, for one that somebody has stopped."""
        self._under_way[execution_id] = BeingEnded()
        self._last_entries.start_soon(self._end_each, [execution_id], Status.STOPPED, why)

    async def end(self, execution_id: str, status: Status, why: str) -> Status:
        """Write down the end of one that the caller has in hand. Returns what it has ended as."""
        execution = await self._workplace.read(execution_id)
        try:
            await self._workplace.end(execution.crew, about(execution), failure(status, why))
        except AlreadyFinished:
            logger.info("execution %s was ended by somebody else meanwhile", execution_id)
            return (await self._workplace.read(execution_id)).status
        return status

    async def _end_each(self, ids: Sequence[str], status: Status, why: str) -> None:
        try:
            for each in ids:
                outcome = await self.end(each, status, why)
                being = self._under_way.pop(each)
                being.outcome = outcome
                being.over.set()
        finally:
            for each in self._under_way.keys() & set(ids):  # undone: who waits need not wait on
                self._under_way[each].over.set()
