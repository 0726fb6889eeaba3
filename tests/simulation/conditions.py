"""The conditions of a simulation: its load, and which faults may still show."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from math import inf

import trio

DISK_FAULT_EFFECT = 60.0
"""Seconds after a disk fault in which its errors may still be logged."""


class FaultTime:
    """The end of the latest fault: `inf` while it lasts, `-inf` before the first one."""

    until = -inf

    def begin(self) -> None:
        self.until = inf

    def end(self) -> None:
        self.until = min(self.until, trio.current_time())


class Conditions:
    """Load and faults. The fault injector sets the faults, and the checks make allowances."""

    def __init__(self) -> None:
        self.activity = 1.0
        """The clients' request rate, relative to the usual one."""
        self.is_calm = False
        """True during a check of the recovery: clients send no bursts and wait for every answer."""
        self.healthy_since = inf
        """The time from which no fault can show any more; `inf` while one can."""
        self.clock_set = -inf
        """The time when the machine's clock was last set."""
        self.invalid_answers = FaultTime()
        """When the portal may call valid links invalid."""
        self.disk_fault = FaultTime()
        self._resumed = trio.Event()
        self._resumed.set()
        self._busy_count = 0
        self._items = count(1_000)

    def next_item(self) -> int:
        """Return the number of an item that nobody has asked for."""
        return next(self._items)

    def was_healthy(self, began: float) -> bool:
        """True if no fault could show since `began`."""
        return began >= self.healthy_since

    @property
    def had_disk_fault(self) -> bool:
        """True during a disk fault and for a while after it."""
        return trio.current_time() <= self.disk_fault.until + DISK_FAULT_EFFECT

    async def act_in_bursts(
        self,
        act: Callable[[], Awaitable[None]],
        chance: random.Random,
        interval_s: float,
        burst_chance: float,
        largest_burst: int,
    ) -> None:
        """Call `act` at random times for ever, some times several calls at once."""
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(chance.expovariate(self.activity / interval_s))
                await self.wait_while_paused()
                burst = chance.random() < burst_chance and not self.is_calm
                for _ in range(chance.randint(2, largest_burst) if burst else 1):
                    nursery.start_soon(act)

    async def wait_while_paused(self) -> None:
        """Wait until clients may begin something."""
        while not self._resumed.is_set():
            await self._resumed.wait()

    def pause_clients(self) -> None:
        """Let clients begin nothing from now on."""
        self._resumed = trio.Event()

    def resume_clients(self) -> None:
        self._resumed.set()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a client as busy in the block."""
        self._busy_count += 1
        try:
            yield
        finally:
            self._busy_count -= 1

    @property
    def is_anybody_busy(self) -> bool:
        return self._busy_count > 0
