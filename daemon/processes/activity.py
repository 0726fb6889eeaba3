"""Whether a process tree has use for a processor.

The problem: who shares the processors out to programs that start has to tell one that works from
one that waits, for a network or for a person, and both are silent.

The choice: it is looked at again and again. One that has used next to no processor since the last
look, and of which nothing runs, or waits to run, or waits for a disk, is idle. The time that it has
used alone would not do: where many want to run, each gets little.
"""

from __future__ import annotations

import os
import time
from typing import Final

from daemon.processes.children import read_all
from daemon.processes.usage import with_descendants

IDLE: Final = 0.05
"""The share of a processor that is next to none. The kernel counts in steps of 10 ms."""
LARGEST: Final = 50
"""Processes that a look takes in, at 0.05 ms each. A larger tree is not idle."""

_TICK: Final = 1.0 / os.sysconf("SC_CLK_TCK")
_AT_WORK: Final = (b"R", b"D")


class Activity:
    """That of the tree below, and with, one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used: float | None = None
        self._at = 0.0

    def is_idle(self) -> bool:
        """Whether it has had no use for a processor since the last look; the first tells nothing.

        Takes 0.1 ms for the usual tree. One that has ended is idle.
        """
        used, at = _used(self._pid), time.monotonic()
        before, since = self._used, self._at
        self._used, self._at = used, at
        if used is None or before is None:
            return False
        return used - before <= IDLE * (at - since)


def _used(pid: int) -> float | None:
    """Seconds of a processor that the tree has used; None when it is at work this moment."""
    used = 0.0
    for found, each in enumerate(with_descendants([pid])):
        if found == LARGEST:
            return None
        try:
            stat = read_all(os.open(f"/proc/{each}/stat", os.O_RDONLY))
        except OSError:
            continue  # it has ended
        # proc_pid_stat(5), from the third field on: the second is a name, with any bytes in it.
        fields = stat.rpartition(b")")[2].split()
        if fields[0] in _AT_WORK:
            return None
        used += sum(map(int, fields[11:15])) * _TICK  # its own, and that of those it has reaped
    return used
