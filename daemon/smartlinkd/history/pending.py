"""Entries that wait in memory to be written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from smartlinkd.history.model import Record


class Pending:
    """A bounded queue. One thread adds to it while another takes; a `deque` allows that."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._records: deque[Record] = deque()
        self._lost = 0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: Record) -> None:
        """Append a record. A full queue loses it."""
        if len(self._records) >= self._limit:
            self._lost += 1
        else:
            self._records.append(record)

    def take(self, most: int) -> list[Record]:
        """Remove and return at most so many, the oldest first."""
        return [self._records.popleft() for _ in range(min(most, len(self._records)))]

    def put_back(self, records: Sequence[Record]) -> None:
        """Put what was taken in front again."""
        self._records.extendleft(reversed(records))

    def lose(self, count: int) -> None:
        """Count entries that were taken and cannot be written."""
        self._lost += count

    def take_lost(self) -> int:
        """Return how many entries were lost since the last call."""
        lost, self._lost = self._lost, 0
        return lost
