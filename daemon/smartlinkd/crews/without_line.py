"""Executions of crews that have no line: their crew was broken, or gone, when the executor began.

The problem: such a crew may be mended or taken out at any time, and until then what waits for it is
counted, and can be stopped. What was interrupted and is to run again has to be put back to its
beginning first, which takes until the disk takes it; whoever looks for what waits meanwhile would
find too little.

The choice: who waits is in the journal, as for everybody. Here they are only counted, and it is
known what is still being put back, which all others wait for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter

import trio

from smartlinkd.crews.again import INTERRUPTED, Again
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.without_worker import WithoutWorker
from smartlinkd.crews.workplace import Workplace
from smartlinkd.journal.model import State, Status, Summary

logger = logging.getLogger(__name__)

NO_CREW = "its crew is no longer in the configuration"
NEVER_RUN = f"its turn did not come: {NO_CREW}"


class WithoutLine:
    """Those that wait until their crew has a line, or is gone. What is written down of them is in
    tasks in `errands`: cut short, it is found undone."""

    def __init__(
        self,
        workplace: Workplace,
        without_worker: WithoutWorker,
        again: Again,
        *,
        errands: trio.Nursery,
    ) -> None:
        self._workplace = workplace
        self._journal = workplace.journal
        self._without_worker = without_worker
        self._again = again
        self._errands = errands
        self._waiting: dict[str, str] = {}
        """The name of the crew of each, by its id."""
        self._putting_back: dict[str, trio.Event] = {}
        """By the name of a crew: set when all its interrupted executions are PENDING again."""

    def load(self) -> Counter[str]:
        """How many wait for each crew."""
        return Counter(self._waiting.values())

    def keep_or_end(self, catalog: Catalog, crew: str, executions: Sequence[Summary]) -> None:
        """Decide which executions of a crew that cannot run wait on, and end the others.

        If the crew is broken, those whose turn has not come wait until it is mended, which a start,
        a reload, or a look in between may find. So do interrupted ones, if the crew runs such
        again; else they end. If the crew is gone, all end.
        """
        is_gone = catalog.is_gone(crew)
        begun = [each for each in executions if each.state is not State.PENDING]
        waiting = [each.id for each in executions if each.state is State.PENDING]
        own = [each for each in catalog.broken if each.name == crew]
        if any(each.on_restart == "rerun" for each in own):
            waiting += [each.id for each in begun]
            self._putting_back[crew] = trio.Event()
            self._errands.start_soon(self._put_back, crew, begun)
        else:
            why = f"{INTERRUPTED}, and {NO_CREW}" if is_gone else INTERRUPTED
            ids = [each.id for each in begun]
            self._without_worker.end_all(ids, Status.INTERRUPTED, why)
        if is_gone:
            self._without_worker.end_all(waiting, Status.INTERRUPTED, NEVER_RUN)
        elif waiting:
            self._waiting.update(dict.fromkeys(waiting, crew))
            logger.warning("%d executions wait until crew %s is mended", len(waiting), crew)

    async def wait_put_back(self, crew: str) -> None:
        """Wait until nothing of a crew is being put back."""
        if (under_way := self._putting_back.get(crew)) is not None:
            await under_way.wait()

    async def take_out(self, crew: str) -> list[str]:
        """Those that have waited for this crew, which has a line now, in their order. From the
        return on they are not counted here."""
        await self.wait_put_back(crew)
        # They were stopped, or their crew was gone. No more of them come while the journal is read:
        # their crew is there, and a stop waits for its line's way in (see `Lines.stop`).
        ending = self._without_worker.ids
        found = await self._workplace.insist("going on", self._journal.unfinished)
        ids = [
            each.id
            for each in sorted(found, key=attrgetter("sequence"))
            if each.crew == crew and each.state is State.PENDING and each.id not in ending
        ]
        for each in ids:
            self.forget(each)
        return ids

    async def end_gone(self, is_gone: Callable[[str], bool]) -> None:
        """End those whose crew is gone by a reload."""
        for crew in list(self._putting_back):
            await self.wait_put_back(crew)
        ending = self._without_worker.ids  # which may be written down by the time that we know
        found = await self._workplace.insist("a reload", self._journal.unfinished)
        ending |= self._without_worker.ids
        waiting = [each for each in found if each.state is State.PENDING and each.id not in ending]
        gone = [each.id for each in waiting if is_gone(each.crew)]
        self._without_worker.end_all(gone, Status.INTERRUPTED, NEVER_RUN)
        for each in gone:
            self.forget(each)

    async def has(self, kickoff_id: str) -> bool:
        """Whether this one has yet to run, where its crew has no line."""
        ask = partial(self._journal.summary, kickoff_id)
        found = await self._workplace.insist(f"execution {kickoff_id}", ask)
        return found is not None and found.state is State.PENDING  # it may be forgotten by now

    def forget(self, execution_id: str) -> None:
        """It does not wait here any more, if it did."""
        self._waiting.pop(execution_id, None)

    async def _put_back(self, crew: str, begun: Sequence[Summary]) -> None:
        for each in begun:
            if not await self._again.begin("rerun", each):
                self.forget(each.id)
        self._putting_back.pop(crew).set()
