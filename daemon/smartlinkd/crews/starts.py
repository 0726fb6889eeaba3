"""How many workers come up at the same time.

The problem: to come up, a worker needs nothing but a processor, for its interpreter and for what it
imports. When many have their turn in the same moment (a burst of kickoffs, a daemon that was
started again) and all come up together, they are all there as late as the last one, and each pushes
the others out of the processor's caches.

The choice: twice as many as there are processors come up at a time, so that one goes on while
another waits for the disk. The next begins when one is up: it has said something, which is
`started`, or has ended. One that has said nothing for `SILENCE` counts as up. And no crew waits for
another: each may always have one that comes up.

Measured on two processors, with sixteen that need half a second of one each: the first is there
after 1.04 s instead of 3.9, on average they are after 2.7 s instead of 4.15, and the last is no
later. Those whose end takes a processor, too, pay for that: of twelve that import CrewAI the last
is there a tenth later, and the average three tenths sooner.

Rejected: to let fewer run, since one that waits for a model's answer needs no processor; and to
have the kernel give each more time in one go (sched_setattr(2), since Linux 6.12), which brings the
last result forward by less.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

import trio

MOST: Final = 2 * len(os.sched_getaffinity(0))
LOOK_EVERY: Final = 0.25
"""Seconds between two looks at how long workers have been coming up. There are none while one more
may come up anyway."""
SILENCE: Final = 10.0
"""Seconds from its turn. One with CrewAI takes three when it is alone, and six among as many as may
come up."""


class Starts:
    """Who comes up. `make_known` is called whenever there may be room for one more."""

    def __init__(self, make_known: Callable[[], None]) -> None:
        self._make_known = make_known
        self._coming: list[ComingUp] = []
        self._full = trio.Event()
        """Set when as many come up as may."""

    def has_room(self, crew: str) -> bool:
        """Whether a worker of that crew may come up now."""
        return len(self._coming) < MOST or self.of(crew) == 0

    def of(self, crew: str) -> int:
        """How many of that crew come up."""
        return sum(one.crew == crew for one in self._coming)

    def begin(self, crew: str) -> ComingUp:
        """One of that crew comes up, from now on until it is said to be up."""
        one = ComingUp(crew, self._note_up)
        self._coming.append(one)
        if len(self._coming) >= MOST:
            self._full.set()
        return one

    async def let_be(self) -> None:
        """Runs with the executor: counts a worker as up when it has said nothing for `SILENCE`."""
        while True:
            while len(self._coming) < MOST:
                self._full = trio.Event()
                await self._full.wait()
            await trio.sleep(LOOK_EVERY)
            for one in list(self._coming):
                if one.takes_its_time():
                    one.up()

    def _note_up(self, one: ComingUp) -> None:
        if one in self._coming:
            self._coming.remove(one)
            self._make_known()


class ComingUp:
    """A worker that comes up. Made by `Starts.begin()`."""

    def __init__(self, crew: str, note_up: Callable[[ComingUp], None]) -> None:
        self.crew = crew
        self._note_up = note_up
        self._until = trio.current_time() + SILENCE

    def takes_its_time(self) -> bool:
        """It has had its time."""
        return trio.current_time() >= self._until

    def up(self) -> None:
        """It has come up, or has ended, so the next may begin. Saying so again does nothing."""
        self._note_up(self)
