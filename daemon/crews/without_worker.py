"""Executions that end without a worker: interrupted, stopped, or of a crew that is gone.

The problem: to write that down takes until the disk takes it. Meanwhile whoever looks for something
to run finds them in the journal, unfinished, and whoever stops one wants to know when it has ended.

The choice: they are known by their ids from when it is decided until it is written down.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from daemon.crews.ledger import about, failure
from daemon.crews.workplace import Workplace
from daemon.journal.errors import AlreadyFinished
from daemon.journal.model import Status

logger = logging.getLogger(__name__)


class WithoutWorker:
    """Those that are being ended, by tasks in `errands`: cut short, they are found undone."""

    def __init__(self, workplace: Workplace, errands: trio.Nursery) -> None:
        self._workplace = workplace
        self._errands = errands
        self._under_way: dict[str, trio.Event] = {}

    @property
    def ids(self) -> set[str]:
        """Of those whose end is not written down yet."""
        return set(self._under_way)

    def ended(self, execution_id: str) -> trio.Event | None:
        """Set when the end of this one is written down, and is not to be found any more then, or
        when it is not going to be; None when it is not being ended."""
        return self._under_way.get(execution_id)

    def begin(self, ids: Sequence[str], status: Status, why: str) -> None:
        """End these, one by one. From now on nobody takes them up."""
        self._under_way.update({each: trio.Event() for each in ids})
        self._errands.start_soon(self._end_each, ids, status, why)

    async def end(self, execution_id: str, status: Status, why: str) -> None:
        """Write down the end of one that the caller has in hand."""
        execution = await self._workplace.read(execution_id)
        try:
            await self._workplace.end(execution.crew, about(execution), failure(status, why))
        except AlreadyFinished:
            logger.info("execution %s was ended by somebody else meanwhile", execution_id)

    async def _end_each(self, ids: Sequence[str], status: Status, why: str) -> None:
        try:
            for each in ids:
                await self.end(each, status, why)
                self._under_way.pop(each).set()
        finally:
            for each in self._under_way.keys() & set(ids):  # undone: who waits need not wait on
                self._under_way[each].set()
