"""Signs of life: which loops of the daemon still come round.

The problem: an actor that hangs (a handler that never ends, a lock that nobody will release) raises
nothing, so its supervisor sees nothing. Whoever asks it waits, and an actor that is merely busy
looks the same to them.

The choice: each loop that others depend on has a `Pulse` and calls `beat` every time it comes
round, ready for the next thing. Whoever watches calls `prompt`, which has an idle loop come round
once, and looks somewhat later when the last beat was. What a loop may do between two beats is part
of its promise: as much as its watcher has patience, and beyond that an `allowance`, where one step
may rightly take longer (the grace of a child that is being stopped, say).

A prompt goes to the loop itself and not through its queue: a queue that is full says nothing about
who empties it.

Rejected: asking each part a question of its own kind (it would wait behind the questions of all
others, and be refused by a full mailbox), and a task beside each loop that answers for it (it would
go on answering).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import trio


class Pulse:
    """A loop's signs of life. `prompt` has the loop come round if it is idle; it is cheap, and does
    nothing while there is no loop. `of` says which loop, where its part has several."""

    def __init__(self, prompt: Callable[[], None], *, of: str = "") -> None:
        self.prompt = prompt
        self.of = of
        self.last = -inf
        """When the last beat was, on trio's clock."""
        self.allowance = 0.0

    def beat(self, allowance: float = 0.0) -> None:
        """The loop is here. The next beat may be `allowance` seconds later than usual."""
        self.last = trio.current_time()
        self.allowance = allowance


@dataclass(frozen=True)
class Vital:
    """A loop that runs now and has to show signs of life.

    `since` is when it began to, on trio's clock. `busy` is for how many seconds all its hands may
    be at work at the same time. `task` is where it runs.
    """

    name: str
    pulse: Pulse
    since: float
    busy: float
    task: trio.lowlevel.Task

    @property
    def last_sign(self) -> float:
        """When there was the last sign of life, on trio's clock; its start is one."""
        return max(self.pulse.last, self.since)

    def overdue(self, now: float) -> float:
        """Seconds since the last sign of life, without those that it may take at any rate."""
        allowance = self.pulse.allowance if self.pulse.last >= self.since else 0.0
        return now - self.last_sign - allowance - self.busy
