"""Whether a process tree has use for a processor.

The problem: who shares the processors out to programs that start has to tell one that works from
one that waits, for a network or for a person, and both are silent.

The choice: it is looked at again and again. One that has used next to no processor since the last
look, and no thread of which runs, or waits to run, or waits for a disk, is idle. The time that it
has used would not do alone: where many want to run, each gets little. The tree is all that is below
its guardian, who adopts what loses its parent.
"""

from __future__ import annotations

import os
from typing import Final

import trio

from smartlinkd.processes.children import children, read_all
from smartlinkd.processes.usage import trees

IDLE: Final = 0.05
"""The share of a processor that is next to none. The kernel counts in steps of 10 ms."""
LARGEST: Final = 50
"""Threads that a look takes in, at 0.01 to 0.05 ms each. A larger tree is not idle."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_AT_WORK: Final = ([b"R"], [b"D"])


class Activity:
    """That of the tree below a guardian."""

    def __init__(self, guardian: int) -> None:
        self._guardian = guardian
        self._used: float | None = None
        self._at = 0.0

    def is_idle(self) -> bool:
        """Whether it has had no use for a processor since the last look; the first tells nothing.

        One that has ended is idle.
        """
        used, at = _used(self._guardian), trio.current_time()
        before, since = self._used, self._at
        self._used, self._at = used, at
        if used is None or before is None:
            return False
        # What has ended since may have taken its time along, and the tree has less than before.
        return 0.0 <= used - before <= IDLE * (at - since)


def _used(guardian: int) -> float | None:
    """Seconds of a processor that the tree has used; None when it is at work this moment."""
    ticks = looked_at = 0
    for pid, threads in trees(_children(guardian)):
        looked_at += len(threads)
        if looked_at > LARGEST or any(_is_at_work(f"{pid}/task/{each}") for each in threads):
            return None
        # Its own, and that of those it has reaped.
        ticks += sum(map(int, _stat(str(pid))[11:15]))
    return ticks / _TICKS


def _children(guardian: int) -> list[int]:
    try:
        return children(f"/proc/{guardian}/task/{guardian}/children")
    except OSError:
        return []  # it has ended


def _is_at_work(thread: str) -> bool:
    return _stat(thread)[:1] in _AT_WORK


def _stat(task: str) -> list[bytes]:
    """From its state on; nothing of one that has ended. proc_pid_stat(5)."""
    try:
        stat = read_all(os.open(f"/proc/{task}/stat", os.O_RDONLY))
    except OSError:
        return []
    return stat.rpartition(b")")[2].split()  # before that is its name, with any bytes in it
