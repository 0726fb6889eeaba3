"""Whether the machine's clock can tell how long a call has been due.

The problem: by a clock that is ahead all calls look old, and a few silences would end them. So they
do when a machine wakes that was suspended over the weekend, before its network is there.

The choice: the clock is believed once it has gone along with trio's for an hour. That one never
jumps, and stands still while the machine is suspended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

import trio

from smartlinkd.store.actor import CLOCK_SET_WITHIN

JUMP: Final = 60.0
"""Seconds by which the two may come to differ without one having been set."""


class SteadyClock:
    """What is known of a clock. It is looked at when it is asked for, and a jump seen then."""

    def __init__(self, wall: Callable[[], datetime]) -> None:
        self._wall = wall
        self._ahead = math.inf
        self._since = 0.0

    def is_steady(self) -> bool:
        """Whether it has gone along for an hour: since it was first asked for, or has jumped."""
        now = trio.current_time()
        ahead = self._wall().timestamp() - now
        if abs(ahead - self._ahead) > JUMP:
            self._ahead, self._since = ahead, now
        return now - self._since >= CLOCK_SET_WITHIN
