"""The store's actor: an execution is on the disk before its client is answered.

A thread carries out the calls in order, several waiting ones in one visit. A caller that is
cancelled before its turn has changed nothing; one that is cancelled during it has its change made
wholly or not at all. Callers that have to know ask in a task that no request ends, or again with
the same idempotency key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio
from pydantic import SecretBytes

from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.nurseries import sole_error
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import DiskFull, NoRoomToOpen
from smartlinkd.store.executions import Executions
from smartlinkd.store.model import Retention, StoreLimits
from smartlinkd.store.outbox import Outbox
from smartlinkd.store.sqlite import copies_of, has_room
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_EXECUTIONS = attrgetter("executions")
_OUTBOX = attrgetter("outbox")


def _call(
    table: Callable[[StoreDatabase], T], work: Callable[Concatenate[T, P], R]
) -> Callable[Concatenate[Store, P], Coroutine[Any, Any, R]]:
    """Return a method of `Store` that has the actor do `work` on one of its tables."""

    @wraps(work)
    async def call(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._do(lambda database: work(table(database), *args, **kwargs))

    return call


class Store:
    """The handle that others hold. It outlives the actor's instances.

    Beside the errors named, each call may raise `Unavailable` (a full disk, for example) and what
    `BlockingMailbox.ask` raises. Nothing was changed then. Only after `ActorRestarting` a change
    may have been made, as after a cancellation.
    """

    def __init__(
        self,
        path: Path,
        *,
        key: SecretBytes,
        retention: Retention,
        limits: StoreLimits | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_disk_full_changed: Callable[[bool], None] = lambda _is_full: None,
    ) -> None:
        """Make a handle. The file is opened by `run`.

        Args:
            path: the file, in a folder that exists.
            key: 32 bytes, under which webhook credentials are encrypted.
            on_disk_full_changed: called with True when the disk takes no more, with False when it
                does again.
        """
        self._limits = limits or StoreLimits()
        self.mailbox = BlockingMailbox[StoreDatabase]("journal", size=self._limits.calls)
        self._path = path
        self._retention = retention
        self._retention_changed = trio.Event()
        self._wall = wall
        self._notify_full = on_disk_full_changed
        self._full = trio.Event()  # set while the disk takes no more
        self._open = partial(StoreDatabase, path, key, limits=self._limits)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance: open the file, answer calls, and prune.

        Raises `UnusableStore`, of which `NoRoomToOpen` is one.
        """
        limiter = trio.CapacityLimiter(1)
        database = await self._opened(limiter)
        try:
            async with sole_error(), trio.open_nursery() as nursery:
                nursery.start_soon(self._prune_regularly)
                nursery.start_soon(self._watch_disk)
                task_status.started()
                await self.mailbox.serve(
                    database, StoreDatabase.run_together, most=self._limits.calls_together
                )
        finally:
            with trio.CancelScope(shield=True):
                await on_thread(database.close, limiter=limiter)

    def set_retention(self, retention: Retention) -> None:
        """Prune by this retention, beginning at once."""
        self._retention = retention
        self._retention_changed.set()

    # Each is documented at the table's method.
    create = _call(_EXECUTIONS, Executions.create)
    created_by = _call(_EXECUTIONS, Executions.created_by)
    record = _call(_EXECUTIONS, Executions.record)
    execution = _call(_EXECUTIONS, Executions.read)
    summary = _call(_EXECUTIONS, Executions.summary)
    executions = _call(_EXECUTIONS, Executions.page)
    events = _call(_EXECUTIONS, Executions.events)
    count_events = _call(_EXECUTIONS, Executions.count_events)
    unfinished = _call(_EXECUTIONS, Executions.unfinished)
    due_deliveries = _call(_OUTBOX, Outbox.due)
    remove_delivery = _call(_OUTBOX, Outbox.remove)
    reschedule = _call(_OUTBOX, Outbox.reschedule)

    async def prune(self, now: datetime) -> int:
        """Delete what is beyond its retention at `now`, and cut free pages off the file.

        Returns how many executions were deleted. Between its short transactions others are
        answered.
        """
        pruned, has_more = 0, True
        while has_more:
            deleted, has_more = await self._do(
                partial(StoreDatabase.prune_some, now=now, kept=self._retention)
            )
            pruned += deleted
        if await self._do(StoreDatabase.release_some_pages):
            while await self._do(StoreDatabase.release_some_pages):
                pass
            await self._do(StoreDatabase.checkpoint)
        await on_thread(self._remove_old_copies, now)
        if not await on_thread(has_room, self._path.parent):  # other programs may have filled it
            self._note_full()
        return pruned

    async def _do(self, work: Callable[[StoreDatabase], R]) -> R:
        try:
            return await self.mailbox.ask(work)
        except DiskFull:
            self._note_full()
            raise

    def _note_full(self) -> None:
        """Note that the disk is full. Log it and notify the owner, unless it was noted before."""
        if not self._full.is_set():
            self._full.set()
            text = "the disk of %s is full: nothing new can be kept until there is room"
            logger.error(text, self._path.parent, extra=LogEvent.DISK_FULL())
            self._notify_full(True)

    async def _opened(self, limiter: trio.CapacityLimiter) -> StoreDatabase:
        try:
            # The thread is awaited also when this is cancelled, so an opened file is always closed.
            return await on_thread(self._open, limiter=limiter)
        except NoRoomToOpen:
            # The owner is not notified: systemd starts the daemon again and again.
            text = "the disk of %s is full: the daemon starts when there is room"
            full = LogEvent.DISK_FULL()
            logger.error(text, self._path.parent, extra=full)  # noqa: TRY400 - raised, and logged
            raise

    def _remove_old_copies(self, now: datetime) -> None:
        """Delete the copies of upgrades in which everything is beyond its retention."""
        for copy in copies_of(self._path):
            with suppress(OSError):  # tried again in the next round
                if copy.stat().st_mtime < (now - self._retention.age).timestamp():
                    copy.unlink()

    async def _prune_regularly(self) -> None:
        while True:
            # Made before the round: a retention that is set during it begins another one at once.
            self._retention_changed = trio.Event()
            await self._prune_now()
            with trio.move_on_after(self._limits.prune_every_s):
                await self._retention_changed.wait()

    async def _prune_now(self) -> None:
        try:
            pruned = await self.prune(self._wall())
            if pruned:
                logger.info("forgot %d executions beyond their retention", pruned)
        except Unavailable as error:
            logger.warning("could not forget old executions: %s", error)

    async def _watch_disk(self) -> None:
        """While the disk is full, look for room. Log it and notify the owner when there is some."""
        while True:
            await self._full.wait()
            await self._prune_now()  # the room that this gives may be enough
            while self._full.is_set():
                await trio.sleep(self._limits.disk_look_s)
                with suppress(Unavailable):
                    if await self._do(StoreDatabase.has_room):
                        self._full = trio.Event()
                        text = "the disk of %s has room again"
                        logger.warning(text, self._path.parent, extra=LogEvent.DISK_HAS_ROOM())
                        self._notify_full(False)
