"""A strike: an action right before one step of a trio run.

trio cancels a task only at its checkpoints, so the steps between them are the only moments to
test. trio calls an `Instrument` before each step of each task.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Strike(trio.abc.Instrument):
    """Runs an action right before the `at`-th step that any task takes after `arm`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.happened = False
        self._steps = 0
        self._action: Callable[[], object] | None = None

    def arm(self, action: Callable[[], object]) -> None:
        """Start counting steps. The action must not raise."""
        self._action = action

    def disarm(self) -> None:
        """Stop counting: the steps from here on belong to the checks."""
        self._action = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's call
        if self._action is None or self.happened:
            return
        self._steps += 1
        if self._steps == self.at:
            self.happened = True
            self._action()
