"""The times: how busy they are, and since when nothing is wrong any more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import inf

import trio

SPOILT = 60.0
"""Seconds for which what a spoilt disk has done may still come out."""


class Weather:
    """See above. What is wrong is noted by the nemesis, for those who have to make allowances."""

    def __init__(self) -> None:
        self.bustle = 1.0
        """How much people do, as a share of what they do in a busy hour."""
        self.calm = False
        """People are considerate, since it is looked at whether all is well."""
        self.fine_since = inf
        """Since when nothing can be wrong any more."""
        self.clock_set = -inf
        """When the clock on the wall was set."""
        self._invalid_until = -inf
        self._spoilt_until = -inf
        self._closed = False
        self._opens = trio.Event()
        self._inside = 0
        self._items = count(1_000)

    def next_item(self) -> int:
        """One that nobody has asked for."""
        return next(self._items)

    def was_fine(self, began: float) -> bool:
        """Whether nothing has been wrong since then."""
        return began >= self.fine_since

    # What is wrong

    def call_invalid(self) -> None:
        """From now until `call_no_more` the portal may call good links invalid."""
        self._invalid_until = inf

    def call_no_more(self) -> None:
        self._invalid_until = min(self._invalid_until, trio.current_time())

    def invalid_since(self, began: float) -> bool:
        """Whether it may have done so since then."""
        return self._invalid_until >= began

    def spoil(self) -> None:
        """From now until `mend` something is wrong with the disk."""
        self._spoilt_until = inf

    def mend(self) -> None:
        self._spoilt_until = min(self._spoilt_until, trio.current_time())

    @property
    def disk_is_spoilt(self) -> bool:
        """Or was, a moment ago."""
        return trio.current_time() <= self._spoilt_until + SPOILT

    # Hours of business

    async def open_hours(self) -> None:
        """Wait until it is time to do something."""
        while self._closed:
            await self._opens.wait()

    def close(self) -> None:
        """Nobody begins anything."""
        self._closed, self._opens = True, trio.Event()

    def open(self) -> None:
        self._closed = False
        self._opens.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Somebody is, in the body."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    @property
    def anybody(self) -> bool:
        """Whether somebody is busy."""
        return self._inside > 0
