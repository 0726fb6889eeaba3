"""Heartbeats: when each loop of the daemon last came round.

An actor that hangs raises nothing, so its supervisor cannot see it. So each loop that others depend
on touches its `Heartbeat` in every turn, and the watchdog (`systemd/watchdog.py`) compares
the last touch with its limit. An idle loop takes no turns: `probe` wakes it for one.

docs/decisions/001-heartbeats.md tells what was rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import trio


class Heartbeat:
    """When a loop last came round, and how long its current step may take.

    Args:
        probe: wakes the loop for one turn if it is idle. It must be cheap, and do nothing while
            the loop does not run. It must take no place in the loop's queue, which may be full.
        of: the loop's name, where its part has several loops.
    """

    def __init__(self, probe: Callable[[], None], *, of: str = "") -> None:
        self.probe = probe
        self.of = of
        self.last = -inf
        """The last touch, on trio's clock."""
        self.allowance_s = 0.0

    def touch(self, allowance_s: float = 0.0) -> None:
        """Record that the loop came round. Its next step may take `allowance_s` seconds more."""
        self.last = trio.current_time()
        self.allowance_s = allowance_s


@dataclass(frozen=True)
class WatchedLoop:
    """A loop that runs now and has to show heartbeats.

    Attributes:
        since: when the loop began, on trio's clock.
        busy: seconds for which all of the loop's slots may be taken at the same time.
        task: the task that runs the loop.
    """

    name: str
    heartbeat: Heartbeat
    since: float
    busy: float
    task: trio.lowlevel.Task

    @property
    def last_seen(self) -> float:
        """The last heartbeat or the loop's start, whichever is later, on trio's clock."""
        return max(self.heartbeat.last, self.since)

    def seconds_late(self, now: float) -> float:
        """Return the seconds since `last_seen`, less what the current step may take anyway."""
        allowance_s = self.heartbeat.allowance_s if self.heartbeat.last >= self.since else 0.0
        return now - self.last_seen - allowance_s - self.busy
