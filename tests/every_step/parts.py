"""Has a part of the daemon fail where it stands: the other way for a piece of work to die.

Whatever goes wrong in an actor, all of it ends by being cancelled: its nursery sees to that. So a
part fails here by having the scope around it cancelled, and raising when nothing of it runs any
more. Its supervisor sees the error and starts it again, half a second later each time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from smartlinkd.app import tree
from smartlinkd.supervision.child import ChildSpec, StartFunction
from smartlinkd.supervision.policy import Backoff, Intensity
from smartlinkd.supervision.supervisor import Supervisor
from tests.faults import stage

RESTARTED = 0.5
"""Seconds between a failure and the next start."""
_EVERY_TIME = Intensity(restarts=10**9)


class Failed(Exception):  # noqa: N818 - says what has happened
    """What a failed part raises."""


class Parts:
    """The parts of a daemon on a stage, in both of its supervisors."""

    def __init__(self) -> None:
        self._lives: dict[str, trio.CancelScope] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Have every daemon that is planted from now on be of parts that can fail, and often."""
        backoff = Backoff(first=RESTARTED, longest=RESTARTED, jitter=0.0)
        patient = partial(Supervisor, backoff=backoff, intensity=_EVERY_TIME)
        patch.setattr(stage, "Supervisor", patient)
        patch.setattr(tree, "ChildSpec", self.spec)

    def spec(self, name: str, run: StartFunction, **more: Any) -> ChildSpec:
        """A `ChildSpec` of a part that can fail."""

        async def mortal(task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as self._lives[name]:
                await run(task_status)
            if self._lives[name].cancel_called:
                raise Failed(f"{name} was struck")

        return ChildSpec(name, mortal, **more)

    def fail(self, name: str) -> None:
        if name in self._lives:
            self._lives[name].cancel()
