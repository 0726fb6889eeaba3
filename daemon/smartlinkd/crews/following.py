"""Following an execution without a queue for each follower.

The problem: a client that polls with `?wait=`, or reads events as they happen, wants to know at
once; there may be many such, some read slowly, some are gone without a word, and a crew may tell
ten thousand things in a second.

The choice: the journal is the queue. A follower hangs a `Bell` on an execution, reads what the
journal has, and waits for the bell to ring again. However much happened since, that is one ring, so
a follower that is slow costs nothing but its own time, and one that is gone leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from smartlinkd.errors import Unavailable
from smartlinkd.store.actor import Store
from smartlinkd.store.model import ExecutionEvent, ExecutionState

MAX_FOLLOWERS = 512
"""At the same time, over all executions: each holds a connection and a task."""
EVENTS_AT_ONCE = 100
"""Read from the journal together."""


class Bell:
    """Rings when something was recorded of an execution. A ring before the wait is not lost."""

    def __init__(self) -> None:
        self.state: ExecutionState | None = None
        """What the last ring said; None before the first."""
        self._rung = trio.Event()

    def ring(self, state: ExecutionState) -> None:
        """Wake whoever waits, now or next."""
        self.state = state
        self._rung.set()

    async def wait(self) -> None:
        """Wait for a ring since the last wait."""
        await self._rung.wait()
        self._rung = trio.Event()


class Bells:
    """The bells of all who follow something."""

    def __init__(self) -> None:
        self._hung: dict[str, set[Bell]] = {}
        self._count = 0

    @property
    def count(self) -> int:
        """How many follow something."""
        return self._count

    @contextmanager
    def on(self, execution_id: str) -> Iterator[Bell]:
        """A bell on an execution for the length of the block. Raises `Unavailable`."""
        if self._count >= MAX_FOLLOWERS:
            raise Unavailable(
                f"{MAX_FOLLOWERS} clients follow executions already; poll /status instead, or "
                "come again",
                retry_after=5,
            )
        bell = Bell()
        self._count += 1
        self._hung.setdefault(execution_id, set()).add(bell)
        try:
            yield bell
        finally:
            self._count -= 1
            others = self._hung[execution_id]
            others.remove(bell)
            if not others:
                del self._hung[execution_id]

    def ring(self, execution_id: str, state: ExecutionState) -> None:
        """Something was recorded of this execution, and this is its state now."""
        for bell in self._hung.get(execution_id, ()):
            bell.ring(state)


class Following:
    """The events of one execution, from some point on. Made by `Executor.follow()`."""

    def __init__(self, journal: Store, kickoff_id: str, bell: Bell, after: int) -> None:
        self._journal = journal
        self._id = kickoff_id
        self._bell = bell
        self._after = after
        self._offset = 0  # in the next event

    async def next(self) -> list[ExecutionEvent]:
        """Return the next events as soon as there is one; [] when the execution has ended and all
        were returned. A large event comes alone and in parts.
        """
        has_ended = False
        while True:
            events = await self._journal.events(
                self._id, after=self._after, limit=EVENTS_AT_ONCE, offset=self._offset
            )
            if events:
                last = events[-1]
                self._after = last.number if last.is_last_part else last.number - 1
                self._offset = 0 if last.is_last_part else last.end
                return events
            if has_ended:
                return []
            execution = await self._journal.summary(self._id)
            has_ended = execution is None or execution.state.ended
            # Its end may have been recorded between the two questions: then ask for events again.
            if not has_ended:
                await self._bell.wait()
