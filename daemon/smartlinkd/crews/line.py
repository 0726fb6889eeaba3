"""A crew's own line: what runs of it, what waits for its turn, and whether there is room."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from smartlinkd.crews.crew import Crew
from smartlinkd.crews.run import Run
from smartlinkd.errors import Unavailable

FULL_RETRY_AFTER = 10
"""Seconds after which a client may find room in a full queue."""


@dataclass
class Line:
    """A crew's executions, by id, in the order of their turn."""

    crew: Crew
    waiting: dict[str, None] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    way_in: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(1, max_value=1))
    """Held from the look for room to the entry, so that the line has the order of the journal."""
    held: bool = False
    """Nothing more is started: its crew was broken, or taken out, by a reload."""

    @property
    def full(self) -> bool:
        """No more can come in."""
        return len(self.waiting) >= self.crew.queue + self._to_be_had

    @property
    def has_place(self) -> bool:
        """One more may run."""
        return not self.held and len(self.running) < self.crew.max_running

    def check_room(self) -> None:
        """Raise `Unavailable` when no more can come in."""
        if self.full:
            free = self._to_be_had
            more = f", and {free} more whose turn is about to come" if free else ""
            raise Unavailable(
                f"the queue of crew {self.crew.name} is full, with {len(self.waiting)} waiting: it "
                f"takes {self.crew.queue} (queue){more}; try again later",
                retry_after=FULL_RETRY_AFTER,
            )

    @property
    def _to_be_had(self) -> int:
        """How many may wait besides those of the queue: one for each place in which no execution is
        under way. Such a place is free, though its next worker may have to wait until it can come
        up; or its execution has ended, and only the worker has yet to go. Otherwise a client that
        kicks off one after the other would find the queue full."""
        busy = sum(not run.is_leaving for run in self.running.values())
        return max(0, self.crew.max_running - busy)
