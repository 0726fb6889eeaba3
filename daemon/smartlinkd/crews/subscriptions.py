"""Following an execution: the store is the queue, and a subscription wakes its reader.

A reader subscribes, reads what the store has, and waits for the next notification. However much
was recorded since, that is one notification, so a slow reader costs nothing but its own time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from smartlinkd.store.actor import Store
from smartlinkd.store.model import ExecutionEvent, ExecutionState

EVENTS_AT_ONCE = 100
"""Events that are read from the store together."""


class Subscription:
    """Wakes its reader when something was recorded of an execution."""

    def __init__(self) -> None:
        self.state: ExecutionState | None = None
        """The execution's state at the last notification; None before the first."""
        self._notified = trio.Event()

    def notify(self, state: ExecutionState) -> None:
        """Wake the reader, now or at its next wait."""
        self.state = state
        self._notified.set()

    async def wait(self) -> None:
        """Wait for a notification since the last wait."""
        await self._notified.wait()
        self._notified = trio.Event()


class Subscriptions:
    """All subscriptions to all executions."""

    def __init__(self) -> None:
        self._of: dict[str, set[Subscription]] = {}

    @property
    def count(self) -> int:
        """The number of subscriptions."""
        return sum(len(each) for each in self._of.values())

    @contextmanager
    def subscribe(self, execution_id: str) -> Iterator[Subscription]:
        """Subscribe to an execution for the length of the block.

        The HTTP API bounds the number of subscriptions: each holds a connection.
        """
        subscription = Subscription()
        self._of.setdefault(execution_id, set()).add(subscription)
        try:
            yield subscription
        finally:
            others = self._of[execution_id]
            others.remove(subscription)
            if not others:
                del self._of[execution_id]

    def notify(self, execution_id: str, state: ExecutionState) -> None:
        """Wake the readers of an execution, which is in this state now."""
        for subscription in self._of.get(execution_id, ()):
            subscription.notify(state)


class ExecutionEventStream:
    """The events of one execution, from some number on. Made by `Executor.follow()`."""

    def __init__(
        self, store: Store, kickoff_id: str, subscription: Subscription, after: int
    ) -> None:
        self._store = store
        self._id = kickoff_id
        self._subscription = subscription
        self._after = after
        self._offset = 0  # in the next event

    async def next(self) -> list[ExecutionEvent]:
        """Return the next events as soon as there is one; [] once all of an ended execution were
        returned. A large event comes alone and in parts.
        """
        has_ended = False
        while True:
            events = await self._store.events(
                self._id, after=self._after, limit=EVENTS_AT_ONCE, offset=self._offset
            )
            if events:
                last = events[-1]
                self._after = last.number if last.is_last_part else last.number - 1
                self._offset = 0 if last.is_last_part else last.end
                return events
            if has_ended:
                return []
            execution = await self._store.summary(self._id)
            has_ended = execution is None or execution.state.ended
            # Its end may have been recorded between the two questions: then ask for events again.
            if not has_ended:
                await self._subscription.wait()
