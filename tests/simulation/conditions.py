"""The conditions of a simulation: its load, and which faults may still show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import inf

import trio

DISK_FAULT_EFFECT = 60.0
"""Seconds after a disk fault in which its errors may still be logged."""


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
        self._invalid_until = -inf
        self._disk_fault_until = -inf
        self._are_paused = False
        self._resumed = trio.Event()
        self._busy_count = 0
        self._items = count(1_000)

    def next_item(self) -> int:
        """Return the number of an item that nobody has asked for."""
        return next(self._items)

    def was_healthy(self, began: float) -> bool:
        """True if no fault could show since `began`."""
        return began >= self.healthy_since

    # Faults

    def begin_invalid_answers(self) -> None:
        """Note that the portal may call valid links invalid, until `end_invalid_answers`."""
        self._invalid_until = inf

    def end_invalid_answers(self) -> None:
        self._invalid_until = min(self._invalid_until, trio.current_time())

    def had_invalid_answers(self, began: float) -> bool:
        """True if the portal may have called a valid link invalid since `began`."""
        return self._invalid_until >= began

    def begin_disk_fault(self) -> None:
        """Note a fault of the disk, until `end_disk_fault`."""
        self._disk_fault_until = inf

    def end_disk_fault(self) -> None:
        self._disk_fault_until = min(self._disk_fault_until, trio.current_time())

    @property
    def had_disk_fault(self) -> bool:
        """True during a disk fault and for a while after it."""
        return trio.current_time() <= self._disk_fault_until + DISK_FAULT_EFFECT

    # Clients

    async def wait_while_paused(self) -> None:
        """Wait until clients may begin something."""
        while self._are_paused:
            await self._resumed.wait()

    def pause_clients(self) -> None:
        """Let clients begin nothing from now on."""
        self._are_paused, self._resumed = True, trio.Event()

    def resume_clients(self) -> None:
        self._are_paused = False
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
        """True if a client is busy."""
        return self._busy_count > 0
