"""The recorder writes what happens to executions, and notifies others once it is on the disk.

Every write but a kickoff is retried until the store takes it, so a disk that is full for a while
loses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

import trio
from prometheus_client import Counter, Histogram

from smartlinkd.crews.model import ExecutorLimits, Subject
from smartlinkd.crews.outcome import Outcome
from smartlinkd.crews.protocol import quoted
from smartlinkd.crews.store_entries import REQUEUED, ended
from smartlinkd.crews.subscriptions import Subscriptions
from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.metrics import LATE, histogram
from smartlinkd.store.actor import Store
from smartlinkd.store.model import (
    Execution,
    ExecutionState,
    ExecutionUpdate,
    IdempotencyKey,
    NewExecution,
    Status,
    Summary,
)
from smartlinkd.supervision.actor import ActorRestarting
from smartlinkd.supervision.calls import retry_until_success

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class ExecutionRecorder:
    """Records executions. `on_calls_queued` is called when webhook calls were queued."""

    store: Store
    subscriptions: Subscriptions
    on_calls_queued: Callable[[], None]
    wall: Callable[[], datetime]
    limits: ExecutorLimits
    ended: Counter = field(
        default_factory=partial(
            Counter,
            "smartlinkd_executions_ended",
            "Executions that have ended",
            ["crew", "status"],
            registry=None,
        )
    )
    waits: Histogram = field(
        default_factory=partial(
            histogram,
            "execution_wait",
            "From a kickoff to the start of its worker, restarts included",
            "crew",
            buckets=LATE,
        )
    )

    def observe_wait(self, crew: str, since: datetime) -> None:
        """Count the wait of an execution that was kicked off at `since` and has its worker now."""
        waited = (self.wall() - since).total_seconds()
        self.waits.labels(crew).observe(max(0.0, waited))  # the wall clock can be set back

    async def create(
        self, new: NewExecution, key: IdempotencyKey | None, entry: ExecutionUpdate | None
    ) -> str:
        """Record a kickoff, and its beginning with `entry`. A client waits, so it is not retried.

        Returns the execution's id: an earlier one's, if `key` is known. Raises as `Store.create`.
        """
        created = await self.store.create(new, idempotency=key, update=entry)
        if created == new.id and entry is not None and entry.deliveries:
            self.on_calls_queued()
        return created

    async def unfinished(self) -> Sequence[Summary]:
        """Return the executions that have not ended, retried until the store answers."""
        return await self._retry_until_success("going on", self.store.unfinished)

    async def count_reruns(self, execution_id: str) -> int:
        """Return how often an execution was put back, retried until the store answers."""
        count = partial(self.store.count_events, execution_id, REQUEUED)
        return await self._retry_until_success(f"execution {execution_id}", count)

    async def read(self, execution_id: str) -> Execution:
        """Return an execution, retried until the store answers. Raises LookupError for none."""
        found = await self._retry_until_success(
            f"execution {execution_id}", partial(self.store.execution, execution_id)
        )
        if found is None:
            raise LookupError(f"execution {execution_id} has not ended and is not in the store")
        return found

    async def record(
        self, execution_id: str, state: ExecutionState, entry: ExecutionUpdate
    ) -> None:
        """Record an entry, retried while the store is unavailable. Then notify the followers.

        Raises `Invalid` as `Executions.record` does.
        """
        record = partial(self.store.record, execution_id, entry)
        try:
            await self._retry_until_success(f"execution {execution_id}", record)
        finally:  # it may be recorded although this task was cancelled meanwhile
            if entry.deliveries:
                self.on_calls_queued()
        self.subscriptions.notify(execution_id, state)

    async def finish(self, crew: str, subject: Subject, outcome: Outcome) -> None:
        """Record an execution's outcome; log and count it. Raises as `record` does."""
        entry = ended(subject, outcome, self.wall())
        await self.record(subject.execution_id, outcome.status.state, entry)
        self.ended.labels(crew, outcome.status).inc()
        kind = (
            LogEvent.EXECUTION_INTERRUPTED
            if outcome.status is Status.INTERRUPTED
            else LogEvent.EXECUTION_FINISHED
        )
        event = kind(crew=crew, kickoff_id=subject.execution_id)
        why = "" if outcome.error is None else f": {quoted(outcome.error)}"
        ended_as = (crew, subject.execution_id, outcome.status, why)
        logger.info("crew %s: execution %s ended as %s%s", *ended_as, extra=event)

    async def _retry_until_success(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the store's answer, retried as long as the store is unavailable."""

        async def wait(refusal: Unavailable, attempts: int) -> None:
            if isinstance(refusal, ActorRestarting):
                # Nobody knows whether it was written. The executor restarts with the store and
                # reads what is there: wait to be cancelled.
                await trio.sleep_forever()
            logger.warning("%s is held up: %s", what, refusal)
            await trio.sleep(self.limits.backoff.wait(attempts))

        return await retry_until_success(ask, wait)
