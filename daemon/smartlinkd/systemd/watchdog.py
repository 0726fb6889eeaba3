"""The watchdog: systemd hears from the daemon only while each of its loops shows heartbeats.

systemd restarts a service that it does not hear from (`WatchdogSec=`, sd_notify(3)). A ping by a
timer would prove only that the event loop turns. docs/decisions/001-heartbeats.md says which loop
may take how long. If code without an `await` blocks the event loop, no ping is sent either. In both
cases systemd ends the daemon by SIGABRT, and Python's `faulthandler` writes to standard error where
all threads stand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import Final

import trio

from smartlinkd.logs import LogEvent
from smartlinkd.supervision.heartbeat import WatchedLoop

logger = logging.getLogger(__name__)

CHECKS_PER_LIMIT: Final = 4
"""Checks, and pings, in the time that systemd allows between two pings."""
MAX_FRAMES: Final = 5
"""The innermost frames of each task. The log cuts a record of very many tasks."""
_TRIO: Final = PurePath(trio.__file__).parent


class Watchdog:
    """Compares the heartbeats of all loops with their limits."""

    def __init__(
        self, watched_loops: Callable[[], Sequence[WatchedLoop]], *, limit_s: float
    ) -> None:
        """Watch what `watched_loops` returns at each check.

        Args:
            limit_s: how long a loop may show no heartbeat, and systemd get no ping.
        """
        self.interval_s = limit_s / CHECKS_PER_LIMIT
        self._watched_loops = watched_loops
        self._limit_s = limit_s
        self._silent: set[str] = set()  # by name; each is logged once

    def check_loops(self) -> bool:
        """Return True if all loops showed a heartbeat in time. Ask all loops for the next one."""
        now = trio.current_time()
        watched_loops = self._watched_loops()
        silent = {
            each.name: each for each in watched_loops if each.seconds_late(now) > self._limit_s
        }
        for name in silent.keys() - self._silent:
            self._log_silent(silent[name], now)
        for name in self._silent - silent.keys():
            logger.warning("%s goes on, or was started again", name)
        self._silent = set(silent)
        for each in watched_loops:
            each.heartbeat.probe()
        return not silent

    def _log_silent(self, silent: WatchedLoop, now: float) -> None:
        logger.error(
            "%s has shown no sign of life for %.0f s: until it does, the service manager is told "
            "nothing, and restarts the daemon after %g s of that. Where it stands: %s",
            silent.name,
            now - silent.last_seen,
            self._limit_s,
            describe_stacks(silent.task),
            extra=LogEvent.WATCHDOG(actor=silent.name),
        )


def describe_stacks(task: trio.lowlevel.Task) -> str:
    """Return where a task and its descendants stand.

    The innermost frame comes first. Variables are left out: they may hold secrets.
    """
    return "; ".join(f"{each.name} at {_format_stack(each)}" for each in _descendants(task))


def _descendants(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _descendants(child)


def _format_stack(task: trio.lowlevel.Task) -> str:
    """Format a task's frames. Of trio's own the outermost is shown: those inside say nothing."""
    shown: list[str] = []
    was_in_trio = False
    for frame, line in task.iter_await_frames():
        path = PurePath(frame.f_code.co_filename)
        is_in_trio = path.is_relative_to(_TRIO)
        if not (is_in_trio and was_in_trio):
            shown.append(f"{'/'.join(path.parts[-2:])}:{line} {frame.f_code.co_name}")
        was_in_trio = is_in_trio
    return " < ".join(reversed(shown[-MAX_FRAMES:])) or "its end"
