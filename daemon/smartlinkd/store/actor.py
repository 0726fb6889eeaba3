"""The journal actor: executions on disk before anybody is told of them.

This is the handle that the rest of the daemon holds. The state of one instance is an open
`Store`, and a thread that alone uses it; each question is whole, and they are done in the order
asked. Those that wait for the thread at the same time go there together (`Store.together`).

An asker that gives up before its turn changes nothing. One that gives up in the midst has its
change made or not made, never half: a transaction on a disk is not cut short. Who must know asks
in a task that no request ends (the executor does), or again with the same idempotency key.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import trio
from pydantic import SecretBytes

from smartlinkd.errors import Unavailable
from smartlinkd.nurseries import sole_error
from smartlinkd.store.database import Store
from smartlinkd.store.disk import LOOK_EVERY, Disk, TellFull, has_room, tell_nobody
from smartlinkd.store.errors import DiskFull, NoRoomToOpen
from smartlinkd.store.model import (
    Created,
    Delivery,
    Entry,
    Event,
    Execution,
    IdempotencyKey,
    NewExecution,
    Page,
    Retention,
    State,
    Summary,
)
from smartlinkd.store.retention import START, Mark
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

QUEUE: Final = 512
"""Questions that may wait: every status poll is one, and takes a fraction of a millisecond."""
TOGETHER: Final = 32
"""Questions of one visit to the thread. Who asks next waits until all of them are done."""
CLOCK_SET_WITHIN: Final = 3600.0
"""Seconds after a start in which a clock that is behind is set right, where there is a network."""
PRUNE_EVERY: Final = 600.0
"""Seconds between two looks for what may be forgotten."""

R = TypeVar("R")


class Journal:
    """What others hold. Beside the errors named, each call may raise `Unavailable` (a full disk,
    say) and those of `BlockingMailbox.ask`: nothing was changed then. Only after `ActorRestarting`
    it may have been, as after giving up in the midst."""

    def __init__(
        self,
        path: Path,
        *,
        key: SecretBytes,
        retention: Retention,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        disk_full: TellFull = tell_nobody,
    ) -> None:
        """The folder of `path` exists; `key` has 32 bytes and seals webhook credentials.
        `disk_full` is told when its disk takes no more, and when it does again."""
        self.mailbox = BlockingMailbox[Store]("journal", size=QUEUE)
        self._path = path
        self._key = key
        self._retention = retention
        self._new_rules = trio.Event()
        self._wall = wall
        self._disk = Disk(path.parent, disk_full)
        self._began = math.inf  # this instance, on trio's clock
        self._was_open = False  # in any instance

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance: opens the file, answers, and forgets what is beyond its retention.

        Raises `UnusableJournal`.
        """
        self._began = trio.current_time()
        limiter = trio.CapacityLimiter(1)
        store = await self._open(limiter)
        self._was_open = True
        try:
            async with sole_error(), trio.open_nursery() as nursery:
                nursery.start_soon(self._prune_regularly)
                nursery.start_soon(self._watch_disk)
                task_status.started()
                await self.mailbox.serve(store, Store.together, most=TOGETHER)
        finally:
            with trio.CancelScope(shield=True):
                await on_thread(store.close, limiter=limiter)

    def take(self, retention: Retention) -> None:
        """Forget by these rules, beginning at once."""
        self._retention = retention
        self._new_rules.set()

    async def create(
        self,
        new: NewExecution,
        *,
        idempotency: IdempotencyKey | None,
        entry: Entry | None = None,
    ) -> Created:
        """Put an execution on disk, unless its idempotency key stands for one already. With an
        `entry`, that as `record` does, in the same transaction.

        Raises `KeyReused`, `TooLarge`, or `Invalid` for values that are no JSON.
        """
        return await self._do(lambda store: store.create(new, idempotency, entry))

    async def created_by(self, crew: str, owner: str, key: IdempotencyKey) -> str | None:
        """The id that `create` would answer for a key that stands for one, else None.

        For what has to be refused only when it is new, as a full queue. Raises `KeyReused`.
        """
        now = self._wall()
        return await self._do(lambda store: store.created_by(crew, owner, key, now))

    async def record(self, execution_id: str, entry: Entry) -> None:
        """Change an execution, number its events and queue its webhook calls, all or nothing.

        Raises `AlreadyFinished`, `TooLarge`, or `Invalid` for values
        that are no JSON. An id that does not exist ends the actor: its asker has lost count.
        """
        await self._do(lambda store: store.record(execution_id, entry))

    async def execution(
        self, execution_id: str, *, crew: str | None = None, owner: str | None = None
    ) -> Execution | None:
        """The execution, or None when there is none of that id, or it was forgotten.

        None also, and as quickly, when it is not of the `crew` and `owner` that are given.
        """
        return await self._do(lambda store: store.execution(execution_id, crew, owner))

    async def summary(
        self, execution_id: str, *, crew: str | None = None, owner: str | None = None
    ) -> Summary | None:
        """The same without what may be large, for who wants to know how it stands."""
        return await self._do(lambda store: store.summary(execution_id, crew, owner))

    async def executions(
        self,
        crew: str,
        *,
        owner: str | None = None,
        state: State | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> Page:
        """At most `limit` (and 100) executions of a crew, newest first.

        `owner` None means everybody's, "" the organization token's own. Raises `Invalid` for a
        cursor that was not given out for this crew and owner.
        """
        return await self._do(lambda store: store.executions(crew, owner, state, limit, cursor))

    async def events(
        self, execution_id: str, *, after: int, limit: int, offset: int = 0
    ) -> list[Event]:
        """Return at most `limit` events numbered above `after`, in order; [] when there are none.

        A large event comes in parts: pass the `end` of the last one as `offset` for the next.
        """
        return await self._do(lambda store: store.events(execution_id, after, limit, offset))

    async def count_bare_events(self, execution_id: str, kind: str) -> int:
        """How many events of this type it has that have no data."""
        return await self._do(lambda store: store.count_bare_events(execution_id, kind))

    async def unfinished(self) -> list[Summary]:
        """All executions that have not ended, in the order of their creation."""
        return await self._do(Store.unfinished)

    async def due_deliveries(
        self,
        now: datetime,
        limit: int,
        *,
        except_ids: Collection[int] = (),
        except_origins: Collection[str] = (),
    ) -> list[Delivery]:
        """At most `limit` (and 100) deliveries whose time has come at `now`, longest due first.

        Of each execution and target only the first that is not done: what was queued behind it
        waits for it, also while it is put off. One that is being made counts as that until `done`
        or `put_off`; `except_ids` are those that the asker has in hand, and `except_origins` the
        origins (`https://host:port`) that have enough of them. A `now` in the future shows when the
        next ones are due.
        """
        return await self._do(
            lambda store: store.due_deliveries(now, limit, except_ids, except_origins)
        )

    async def done(self, delivery_id: int) -> None:
        """Forget a delivery that was made, or is given up. Saying so twice does nothing."""
        await self._do(lambda store: store.done(delivery_id))

    async def put_off(self, delivery_id: int, next_at: datetime) -> None:
        """A delivery failed, and is due again at `next_at`."""
        await self._do(lambda store: store.put_off(delivery_id, next_at))

    async def give_up_deliveries(
        self, origin: str, before: datetime, *, except_ids: Collection[int]
    ) -> Counter[tuple[str, str]]:
        """Give up some of what has been due at that origin since before that, be it put off since,
        without `except_ids`. Returns how many those were, by the execution's id and crew; none when
        there are no more."""
        return await self._do(lambda store: store.give_up_deliveries(origin, before, except_ids))

    async def look_at_disk(self) -> None:
        """Somebody else has met a full one. If it is the journal's, that is told."""
        if not await on_thread(has_room, self._path.parent):
            self._disk.note_full()

    async def wait_for_room(self, at_most: float) -> None:
        """Wait before another try, until a disk that was full has room: so many seconds at most."""
        await self._disk.wait_for_room(at_most)

    async def prune(self, now: datetime) -> int:
        """Forget what is beyond its retention at `now`; returns how many executions that was. What
        of the file is free then, is given back to the disk, but for some.

        Many short transactions, between which others are answered. A key that seems to come of a
        clock far ahead is kept for this instance's first hour: the clock that a machine starts
        with may be behind, and set right in a moment.
        """
        far_keys = trio.current_time() - self._began >= CLOCK_SET_WITHIN
        forgotten = 0
        mark: Mark | None = START
        while mark is not None:
            ask = partial(
                Store.prune_some, now=now, kept=self._retention, mark=mark, far_keys=far_keys
            )
            batch = await self._do(ask)
            forgotten, mark = forgotten + batch.forgotten, batch.mark
        if await self._do(Store.give_back_some):
            while await self._do(Store.give_back_some):
                pass
            await self._do(Store.checkpoint)
        await self.look_at_disk()  # whoever has filled it
        return forgotten

    async def _do(self, work: Callable[[Store], R]) -> R:
        try:
            return await self.mailbox.ask(work)
        except DiskFull:
            self._disk.note_full()
            raise

    async def _open(self, limiter: trio.CapacityLimiter) -> Store:
        # A thread is waited for also when this is cancelled, so an opened file is always closed.
        try:
            return await on_thread(Store, self._path, self._key, limiter=limiter)
        except NoRoomToOpen:
            if self._was_open:
                self._disk.note_full()
            else:
                self._disk.note_full_before_start()
            raise

    async def _prune_regularly(self) -> None:
        while True:
            # Before the round: rules that come in its midst are for another one.
            self._new_rules = trio.Event()
            await self._prune_now()
            with trio.move_on_after(PRUNE_EVERY):
                await self._new_rules.wait()

    async def _prune_now(self) -> None:
        try:
            forgotten = await self.prune(self._wall())
            if forgotten:
                logger.info("forgot %d executions beyond their retention", forgotten)
        except Unavailable as error:
            logger.warning("could not forget old executions: %s", error)

    async def _watch_disk(self) -> None:
        while True:
            await self._disk.wait_full()
            await self._prune_now()  # what that gives back may be all that is missing
            while self._disk.is_full():
                await trio.sleep(LOOK_EVERY)
                with suppress(Unavailable):
                    # Once more: what was written together with that is on the disk only now.
                    if await self._do(Store.has_room) and await on_thread(
                        has_room, self._path.parent
                    ):
                        self._disk.note_room()
