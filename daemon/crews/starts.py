"""How many workers come up at the same time.

The problem: to come up, a worker needs nothing but a processor, for its interpreter and for what it
imports. When many have their turn in the same moment (a burst of kickoffs, a daemon that was
started again) and all come up together, they are all there as late as the last one, and each pushes
the others out of the processor's caches.

The choice: twice as many as there are processors come up at a time, so that one goes on while
another waits for the disk. The next begins when one is up: it has said something, which is
`started`, or has ended. For one that says nothing nobody waits longer than `SILENCE`. And no crew
waits for another: each may always have one that comes up. Of sixteen that need half a second of a
processor each, the first is there after 1.04 s and not after 3.9, all of them after 2.7 s and not
4.15 on average, and the last no later (two processors).

Rejected: to let fewer run, since one that waits for a model's answer needs no processor; and to
have the kernel give each more time in one go (sched_setattr(2), since Linux 6.12), which brings the
last result forward by less.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final
from weakref import WeakValueDictionary

import trio

MOST: Final = 2 * len(os.sched_getaffinity(0))
SILENCE: Final = 5.0
"""Seconds. One with CrewAI takes three when it is alone, and six among as many as may come up. More
than that would not be fair to programs that have another reason to be silent."""


class Starts:
    """Whose worker may come up now: of each crew, in the order asked."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._coming: dict[ComingUp, float] = {}  # since when; who began first is the first
        self._lines: WeakValueDictionary[str, trio.StrictFIFOLock] = WeakValueDictionary()
        self._one_is_up = trio.Event()

    def one(self, crew: str) -> ComingUp:
        """A worker of that crew comes up in the block, which is entered when it may."""
        return ComingUp(self, crew)

    async def _wait(self, one: ComingUp) -> None:
        async with self._lines.setdefault(one.crew, trio.StrictFIFOLock()):
            while self._has_to_wait(one.crew):
                longest, since = next(iter(self._coming.items()))
                with trio.move_on_at(since + SILENCE) as patience:
                    await self._one_is_up.wait()
                if patience.cancelled_caught:
                    longest.is_up()
            self._coming[one] = trio.current_time()

    def _has_to_wait(self, crew: str) -> bool:
        return len(self._coming) >= self._most and any(one.crew == crew for one in self._coming)

    def _let_go(self, one: ComingUp) -> None:
        if self._coming.pop(one, None) is not None:
            self._one_is_up.set()
            self._one_is_up = trio.Event()


class ComingUp(AbstractAsyncContextManager["ComingUp"]):
    """Made by `Starts.one()`."""

    def __init__(self, starts: Starts, crew: str) -> None:
        self.crew = crew
        self._starts = starts

    async def __aenter__(self) -> ComingUp:
        await self._starts._wait(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_up()

    def is_up(self) -> None:
        """Or has ended: the next may begin. Nothing happens when that is said again."""
        self._starts._let_go(self)
