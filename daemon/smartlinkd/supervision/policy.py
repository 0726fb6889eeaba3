"""Restart rules: which children are restarted, the wait before it, and when to give up. No clock.

The terms are Erlang/OTP's (`supervisor`, "Supervision Principles"). OTP has no waits: a full disk
would be five crashes in a millisecond.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from enum import StrEnum


class Strategy(StrEnum):
    """The children that are restarted with one that ended."""

    ONE_FOR_ONE = "one_for_one"  # nobody
    REST_FOR_ONE = "rest_for_one"  # those started after it, since they depend on it


@dataclass(frozen=True)
class Backoff:
    """Exponential waits with jitter: `first`, twice that, … up to `longest` seconds.

    A child that stayed up for `healthy` seconds starts over at `first`. `jitter` is the share of a
    wait by which chance makes it shorter, so that things which failed together do not come back
    together.
    """

    first: float = 0.5
    longest: float = 30.0
    healthy: float = 60.0
    jitter: float = 0.2

    def wait(self, failures: int, chance: random.Random | None = None) -> float:
        """Seconds to wait after the `failures`-th failure in a row (1 for the first)."""
        chance = chance or random.Random()  # noqa: S311 - spreads waits, guards nothing
        full = min(self.longest, self.first * 2.0 ** min(failures - 1, 32))
        return full * (1 - self.jitter * chance.random())


@dataclass(frozen=True)
class Intensity:
    """More than `restarts` restarts within `period` seconds is more than restarting can cure."""

    restarts: int = 5
    period: float = 60.0


class RestartWindow:
    """Counts restarts in the sliding period of an `Intensity`."""

    def __init__(self, intensity: Intensity) -> None:
        self._intensity = intensity
        self._times: deque[float] = deque(maxlen=intensity.restarts + 1)

    def exceeded_by(self, now: float) -> bool:
        """Record a restart at `now`, on trio's clock. Return True if it is one too many."""
        self._times.append(now)
        while now - self._times[0] > self._intensity.period:
            self._times.popleft()
        return len(self._times) > self._intensity.restarts
