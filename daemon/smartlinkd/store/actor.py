"""The store's actor: an execution is on the disk before its client is answered.

A thread carries out the calls in order, all waiting ones in one visit. A caller that is cancelled
before its turn has changed nothing; one that is cancelled during it has its change made wholly or
not at all. Callers that have to know ask in a task that no request ends, or again with the same
idempotency key.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio
from pydantic import SecretBytes

from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.nurseries import sole_error
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.disk import Disk, NotifyFull, has_room, notify_nobody
from smartlinkd.store.errors import DiskFull, NoRoomToOpen
from smartlinkd.store.model import (
    Created,
    Delivery,
    Execution,
    ExecutionEvent,
    ExecutionState,
    ExecutionUpdate,
    IdempotencyKey,
    ListPage,
    NewExecution,
    Retention,
    StoreLimits,
    Summary,
)
from smartlinkd.store.sqlite import Synchronous, copies_of
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

R = TypeVar("R")


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
        disk_full: NotifyFull = notify_nobody,
        synchronous: Synchronous = "FULL",
    ) -> None:
        """Make a handle. The file is opened by `run`.

        Args:
            path: the file, in a folder that exists.
            key: 32 bytes, under which webhook credentials are encrypted.
            disk_full: called when the disk takes no more, and when it does again.
            synchronous: FULL keeps what was answered also when the power fails.
        """
        self._limits = limits or StoreLimits()
        self.mailbox = BlockingMailbox[StoreDatabase]("journal", size=self._limits.calls)
        self._path = path
        self._retention = retention
        self._retention_changed = trio.Event()
        self._wall = wall
        self._disk = Disk(path.parent, disk_full)
        self._open = partial(StoreDatabase, path, key, limits=self._limits, synchronous=synchronous)

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

    async def create(
        self,
        new: NewExecution,
        *,
        idempotency: IdempotencyKey | None,
        update: ExecutionUpdate | None = None,
    ) -> Created:
        """Store an execution, unless its idempotency key stands for one already.

        An `update` is recorded in the same transaction, as `record` does.

        Raises:
            KeyReused: the key was used with another body.
            TooLarge, Invalid: a value cannot be stored.
        """
        return await self._do(lambda database: database.executions.create(new, idempotency, update))

    async def created_by(self, crew: str, owner: str, key: IdempotencyKey) -> str | None:
        """Return the id that `create` would answer for a used key, else None.

        For what has to be refused only if it is new, as a full queue. Raises `KeyReused`.
        """
        now = self._wall()
        return await self._do(
            lambda database: database.executions.created_by(crew, owner, key, now)
        )

    async def record(self, execution_id: str, update: ExecutionUpdate) -> None:
        """Change an execution, number its events and queue its webhook calls, all or nothing.

        An id that does not exist ends the actor: the caller has a bug. A disk with too little room
        refuses the beginning of an execution, whose worker would find none.

        Raises:
            AlreadyFinished: the execution has ended.
            TooLarge, Invalid: a value cannot be stored.
        """
        await self._do(lambda database: database.executions.record(execution_id, update))

    async def execution(
        self, execution_id: str, *, crew: str | None = None, owner: str | None = None
    ) -> Execution | None:
        """Return the execution; None if no execution has this id, or it was pruned.

        Returns None also, and as quickly, if it has another `crew` or `owner`, where given.
        """
        return await self._do(
            lambda database: database.executions.read(execution_id, crew=crew, owner=owner)
        )

    async def summary(
        self, execution_id: str, *, crew: str | None = None, owner: str | None = None
    ) -> Summary | None:
        """Return the execution without what may be large. Returns None as `execution` does."""
        return await self._do(
            lambda database: database.executions.summary(execution_id, crew=crew, owner=owner)
        )

    async def executions(
        self,
        crew: str,
        *,
        owner: str | None = None,
        state: ExecutionState | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> ListPage:
        """Return at most `limit` (and 100) executions of a crew, newest first.

        An `owner` of None stands for everybody, "" for the organization token. Raises `Invalid` for
        a cursor that no list can have given.
        """
        return await self._do(
            lambda database: database.executions.page(
                crew, owner=owner, state=state, limit=limit, cursor=cursor
            )
        )

    async def events(
        self, execution_id: str, *, after: int, limit: int, offset: int = 0
    ) -> list[ExecutionEvent]:
        """Return at most `limit` events numbered above `after`, in order; [] if there are none.

        A large event comes in parts: pass the `end` of the last part as `offset` for the next.
        """
        return await self._do(
            lambda database: database.executions.events(
                execution_id, after=after, limit=limit, offset=offset
            )
        )

    async def count_bare_events(self, execution_id: str, kind: str) -> int:
        """Return how many events of a type have no data."""
        return await self._do(
            lambda database: database.executions.count_bare_events(execution_id, kind)
        )

    async def unfinished(self) -> list[Summary]:
        """Return all executions that have not ended, in the order of their creation."""
        return await self._do(lambda database: database.executions.unfinished())

    async def due_deliveries(
        self,
        now: datetime,
        limit: int,
        *,
        except_ids: Collection[int] = (),
        except_origins: Collection[str] = (),
    ) -> list[Delivery]:
        """Return at most `limit` (and 100) deliveries that are due at `now`, longest due first.

        Of each execution and target only the first delivery counts. Those behind it wait until it
        is removed, also while it is rescheduled. A `now` in the future shows when the next ones are
        due.

        Args:
            except_ids: deliveries that are being made.
            except_origins: origins (`https://host:port`) that get no more at the moment.
        """
        return await self._do(
            lambda database: database.outbox.due(
                now, limit, except_ids=except_ids, except_origins=except_origins
            )
        )

    async def remove_delivery(self, delivery_id: int) -> None:
        """Delete a delivery that was made or given up. Do nothing if it is gone already."""
        await self._do(lambda database: database.outbox.remove(delivery_id))

    async def reschedule(self, delivery_id: int, next_at: datetime) -> None:
        """Count a failed attempt of a delivery, which is due again at `next_at`."""
        await self._do(lambda database: database.outbox.reschedule(delivery_id, next_at))

    async def wait_for_room(self, at_most_s: float) -> None:
        """Wait before another try, until a disk that was full has room: so many seconds at most."""
        await self._disk.wait_for_room(at_most_s)

    async def prune(self, now: datetime) -> int:
        """Delete what is beyond its retention at `now`, and cut free pages off the file.

        Returns how many executions were deleted. Between its short transactions others are
        answered.
        """
        pruned, has_more = 0, True
        while has_more:
            batch = await self._do(partial(StoreDatabase.prune_some, now=now, kept=self._retention))
            pruned, has_more = pruned + batch.executions, batch.has_more
        if await self._do(StoreDatabase.release_some_pages):
            while await self._do(StoreDatabase.release_some_pages):
                pass
            await self._do(StoreDatabase.checkpoint)
        await on_thread(self._remove_old_copies, now)
        if not await on_thread(has_room, self._path.parent):  # other programs may have filled it
            self._disk.note_full()
        return pruned

    async def _do(self, work: Callable[[StoreDatabase], R]) -> R:
        try:
            return await self.mailbox.ask(work)
        except DiskFull:
            self._disk.note_full()
            raise

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
            # Made before the round: a retention that is set during it is for the next one.
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
        while True:
            await self._disk.wait_full()
            await self._prune_now()  # the room that this gives may be enough
            while self._disk.is_full():
                await trio.sleep(self._limits.disk_look_s)
                with suppress(Unavailable):
                    if await self._do(StoreDatabase.has_room):
                        self._disk.note_room()
