"""The history actor: keeps each converted link in `history.sqlite`; no conversion waits for it.

`keep` appends to a queue in memory and returns. A task writes the queue to the file. A full or
failing disk costs entries and never a conversion. A damaged file is set aside, and one of a newer
version is left alone. One thread at a time uses the file, for one call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import trio

from smartlinkd.conversion.request import ConversionRequest
from smartlinkd.conversion.schemas import LinkResult, SuccessEntry
from smartlinkd.errors import NotFound, Unavailable
from smartlinkd.history.database import HistoryDatabase
from smartlinkd.history.model import (
    ALL,
    Day,
    Entry,
    Filters,
    HistoryLimits,
    HistoryRetention,
    Record,
    milliseconds,
)
from smartlinkd.nurseries import sole_error
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

FILE: Final = "history.sqlite"
_CUT: Final = "…"


class History:
    """The handle that others hold. It outlives the actor's instances.

    Every asynchronous method may raise `Unavailable`, also when the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        retention: HistoryRetention,
        limits: HistoryLimits | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """The folder of `path` exists. The file is made when it is needed."""
        self._limits = limits or HistoryLimits()
        self.mailbox = BlockingMailbox[HistoryDatabase]("history", size=self._limits.calls)
        self._database = HistoryDatabase(path, self._limits)
        self._retention = retention
        self._wall = wall
        self._changed = trio.Event()
        self._stopping = trio.Event()

    def keep(self, request: ConversionRequest, results: Mapping[str, LinkResult]) -> None:
        """Keep what was converted of a request. Returns at once, and raises nothing."""
        if not self._retention.keeps_any:
            return
        at_ms = milliseconds(self._wall())
        for link, made in results.items():
            if isinstance(made, SuccessEntry):
                record = Record(at_ms, request.client, request.sub_ids, self._cut(link), made)
                self._database.add(record)
                self._changed.set()

    def set_retention(self, retention: HistoryRetention) -> None:
        """Prune by this retention from now on."""
        self._retention = retention
        self._changed.set()

    def stop(self) -> None:
        """Have `run` write what waits, and return."""
        self._stopping.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance: write, answer, and prune."""
        try:
            async with sole_error(), trio.open_nursery() as nursery:
                nursery.start_soon(self.mailbox.serve, self._database)
                nursery.start_soon(self._write_and_prune)
                task_status.started()
                await self._stopping.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await on_thread(self._database.close)

    async def page(self, filters: Filters, *, limit: int, before: int | None = None) -> list[Entry]:
        """Return at most `limit` entries, the newest first, with ids below `before`."""
        return await self.mailbox.ask(lambda database: database.page(filters, limit, before))

    async def days(self, filters: Filters, *, utc_offset_min: int = 0) -> list[Day]:
        """Return the days that have entries, the oldest first.

        A day begins at midnight of a clock that is so many minutes ahead of UTC.
        """
        return await self.mailbox.ask(lambda database: database.days(filters, utc_offset_min))

    async def delete(self, filters: Filters) -> int:
        """Delete the entries that fit, and return how many there were.

        It takes several transactions, unless all are meant. An entry that is added meanwhile stays.
        """
        if filters == ALL:
            deleted = await self.mailbox.ask(HistoryDatabase.clear)
        else:
            newest, deleted = await self.mailbox.ask(HistoryDatabase.newest), 0
            while some := await self.mailbox.ask(
                lambda database: database.delete_some(filters, newest)
            ):
                deleted += some
        self._changed.set()
        return deleted

    async def delete_one(self, entry_id: int) -> None:
        """Delete one entry. Raises `NotFound`."""
        if not await self.mailbox.ask(lambda database: database.delete(entry_id)):
            raise NotFound("the history has no entry with this id; it may be deleted already")

    def _cut(self, link: str) -> str:
        most = self._limits.link_chars
        return link if len(link) <= most else link[: most - len(_CUT)] + _CUT

    async def _write_and_prune(self) -> None:
        """Write what waits and prune, whenever there is something new; prune also now and then."""
        while True:
            self._changed = trio.Event()
            try:
                is_done = await self.mailbox.ask(HistoryDatabase.write_pending)
                await self._prune()
            except Unavailable as error:
                logger.debug("the history is written and pruned later: %s", error)
                is_done = False
            if is_done:
                with trio.move_on_after(self._limits.prune_every_s):
                    await self._changed.wait()
                await trio.sleep(self._limits.gather_s)
            else:
                await trio.sleep(self._limits.retry_s)

    async def _prune(self) -> None:
        now_ms = milliseconds(self._wall())
        while await self.mailbox.ask(lambda database: database.prune_some(self._retention, now_ms)):
            pass
