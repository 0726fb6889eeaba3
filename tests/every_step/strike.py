"""A strike: something that happens right before a certain step of all that a trio run takes.

A task can be cancelled where it waits, and nowhere else; between two such places it runs alone. So
the steps between them are the only moments that there are, and whoever has tried each one has tried
them all. trio tells an `Instrument` before it lets a task take a step, whichever task it is.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Strike(trio.abc.Instrument):
    """Does its deed right before the `at`-th step that any task takes after `arm`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.happened = False
        self._steps = 0
        self._deed: Callable[[], object] | None = None

    def arm(self, deed: Callable[[], object]) -> None:
        """Begin to count. `deed` must not raise; cancelling a scope, say, or setting an event."""
        self._deed = deed

    def disarm(self) -> None:
        """What comes from here on is the look at what was left."""
        self._deed = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's call
        if self._deed is None or self.happened:
            return
        self._steps += 1
        if self._steps == self.at:
            self.happened = True
            self._deed()
