"""What all executions share, and how something of them is recorded.

What is to be recorded is tried until the journal takes it: a disk that is full for a while loses
nothing. Only then others hear of it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import trio
from prometheus_client import Histogram

from smartlinkd.crews.ending import About, Ending
from smartlinkd.crews.following import Bells
from smartlinkd.crews.ledger import ended, together
from smartlinkd.crews.protocol import quoted
from smartlinkd.crews.tools import Tool
from smartlinkd.crews.worker import NoRoom
from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.journal.actor import Journal
from smartlinkd.journal.model import (
    Created,
    Entry,
    Execution,
    IdempotencyKey,
    NewExecution,
    State,
    Status,
)
from smartlinkd.logs import LogEvent
from smartlinkd.metrics import LATE, histogram
from smartlinkd.supervision.actor import ActorRestarting
from smartlinkd.threads import NoThread

logger = logging.getLogger(__name__)

FIRST_RETRY = 0.5
LONGEST_RETRY = 30.0
"""Seconds between two tries to record something. When a full disk has room, it is tried at once."""

LAST_ENTRY = 2.0
"""Seconds to record what has ended, or was stopped, when all is left off. It takes milliseconds,
but with a full disk, or a journal that waits for us to end before it starts again, it would take
for ever."""

T = TypeVar("T")
P = ParamSpec("P")


class LastEntries:
    """What is recorded by tasks in `running`, and has `LAST_ENTRY` for it when all is left off. Cut
    short at once, it might be on the disk, and nobody here would know."""

    def __init__(self, running: trio.Nursery) -> None:
        self._running = running
        self._scopes: set[trio.CancelScope] = set()

    def start_soon(
        self, record: Callable[P, Awaitable[None]], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Have it recorded."""
        scope = trio.CancelScope()
        self._scopes.add(scope)
        self._running.start_soon(self._within, scope, partial(record, *args, **kwargs))

    def leave_off(self) -> None:
        """What is not recorded within `LAST_ENTRY` from now on is given up."""
        for each in self._scopes:
            each.deadline = trio.current_time() + LAST_ENTRY

    async def _within(self, scope: trio.CancelScope, record: Callable[[], Awaitable[None]]) -> None:
        try:
            with scope:
                await record()
        finally:
            self._scopes.remove(scope)


@dataclass(frozen=True)
class Workplace:
    """What all executions share: where they record, who is told, and what workers may use."""

    journal: Journal
    bells: Bells
    tools: Mapping[str, Tool]
    runs: Path
    """The folder that workers' own folders are made in."""
    queued: Callable[[], None]
    """Called when webhook calls were queued."""
    wall: Callable[[], datetime]
    ends: Counter[tuple[str, Status]] = field(default_factory=Counter)
    """How many executions of each crew have ended as what."""
    waits: Histogram = field(
        default_factory=partial(
            histogram,
            "execution_wait",
            "From a kickoff to the start of its worker, restarts included",
            "crew",
            buckets=LATE,
        )
    )

    def has_waited(self, crew: str, since: datetime) -> None:
        """An execution of this crew, kicked off then, has its worker."""
        waited = (self.wall() - since).total_seconds()
        self.waits.labels(crew).observe(max(0.0, waited))  # the wall's clock can be set back

    async def read(self, execution_id: str) -> Execution:
        """An execution that is there. Tried for as long as it takes."""
        found = await self.insist(
            f"execution {execution_id}", partial(self.journal.execution, execution_id)
        )
        if found is None:
            raise LookupError(f"execution {execution_id} has not ended and is not in the journal")
        return found

    async def enter(
        self, new: NewExecution, key: IdempotencyKey | None, entry: Entry | None
    ) -> Created:
        """Record a new execution, and with it what becomes of it at once. Tried once.

        Raises what `Journal.create` does.
        """
        created = await self.journal.create(new, idempotency=key, entry=entry)
        if entry is not None and created.is_new and entry.deliveries:
            self.queued()
        return created

    async def record(self, execution_id: str, state: State, *entries: Entry) -> None:
        """Record these together, for as long as it takes. `state` is what the execution is in then.

        Raises `Invalid` for what the journal will never take; what comes before that is recorded.
        """
        try:
            await self._record(execution_id, state, together(entries))
        except Invalid:
            if len(entries) == 1:
                raise
            *before, last = entries
            for entry in before:
                await self._record(execution_id, State.RUNNING, entry)
            await self._record(execution_id, state, last)

    async def _record(self, execution_id: str, state: State, entry: Entry) -> None:
        record = partial(self.journal.record, execution_id, entry)
        try:
            await self.insist(f"execution {execution_id}", record)
        finally:  # it may be recorded all the same where we are cut short meanwhile
            if entry.deliveries:
                self.queued()
        self.bells.ring(execution_id, state)

    async def end(
        self, crew: str, subject: About, ending: Ending, *, after: Sequence[Entry] = ()
    ) -> None:
        """Record the end of an execution, and what comes right before it; tell of it and count it.

        Raises what `record` does.
        """
        entry = ended(subject, ending, self.wall())
        await self.record(subject.execution_id, ending.status.state, *after, entry)
        self.ends[crew, ending.status] += 1
        kind = (
            LogEvent.EXECUTION_INTERRUPTED
            if ending.status is Status.INTERRUPTED
            else LogEvent.EXECUTION_FINISHED
        )
        about = kind(crew=crew, kickoff_id=subject.execution_id)
        why = "" if ending.error is None else f": {quoted(ending.error)}"
        ended_as = (crew, subject.execution_id, ending.status, why)
        logger.info("crew %s: execution %s ended as %s%s", *ended_as, extra=about)

    async def with_room(self, what: str, do: Callable[[], Awaitable[T]]) -> T:
        """What `do` returns, tried again for as long as it raises `NoRoom`. `what` is held up until
        then: a full disk costs time, and no execution."""
        pause = FIRST_RETRY
        while True:
            try:
                return await do()
            except NoRoom as fault:
                logger.warning("%s is held up: %s", what, fault)
            with suppress(NoThread):  # to have none for the look is no reason to end it
                await self.journal.look_at_disk()
            await self.journal.wait_for_room(pause)
            pause = min(LONGEST_RETRY, pause * 2)

    async def insist(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """What the journal answers, for as long as it takes. `what` is held up until then."""
        pause = FIRST_RETRY
        while True:
            try:
                return await ask()
            except ActorRestarting:
                # Nobody knows whether it was written. The executor restarts with the journal and
                # reads what is there: wait to be cancelled.
                await trio.sleep_forever()
            except Unavailable as fault:
                logger.warning("%s is held up: %s", what, fault)
            await self.journal.wait_for_room(pause)
            pause = min(LONGEST_RETRY, pause * 2)
