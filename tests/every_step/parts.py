"""Makes a part of the daemon fail at any step.

An error anywhere in an actor cancels all its tasks. So a part fails here when the scope around it
is cancelled: it raises when all its tasks have ended. Its supervisor restarts it after half a
second.
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


class Failed(Exception):  # noqa: N818 - reads well in the log
    """The error of a failed part."""


class Parts:
    """The parts of both supervisors of a daemon on a stage, by name."""

    def __init__(self) -> None:
        self._scopes: dict[str, trio.CancelScope] = {}

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Make the parts of every later daemon able to fail, any number of times."""
        backoff = Backoff(first=RESTARTED, longest=RESTARTED, jitter=0.0)
        patient = partial(Supervisor, backoff=backoff, intensity=_EVERY_TIME)
        patch.setattr(stage, "Supervisor", patient)
        patch.setattr(tree, "ChildSpec", self.spec)

    def spec(self, name: str, run: StartFunction, **more: Any) -> ChildSpec:
        """Return a `ChildSpec` whose part can fail."""

        async def failable(task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope() as self._scopes[name]:
                await run(task_status)
            if self._scopes[name].cancel_called:
                raise Failed(f"{name} was struck")

        return ChildSpec(name, failable, **more)

    def fail(self, name: str) -> None:
        if name in self._scopes:
            self._scopes[name].cancel()
