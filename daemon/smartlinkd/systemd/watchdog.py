"""The watchdog: systemd hears from the daemon only while each of its loops shows heartbeats.

systemd restarts a service that it does not hear from (`WatchdogSec=`, sd_notify(3)). A ping by a
timer would prove only that the event loop turns. docs/decisions/001-heartbeats.md says which loop
may take how long. If code without an `await` blocks the event loop, no ping is sent, and Python's
`faulthandler` writes to standard error where all threads stand.
"""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from types import FrameType
from typing import Final

import trio

from smartlinkd.logs import LogEvent
from smartlinkd.supervision.heartbeat import WatchedLoop
from smartlinkd.wire import timestamp

logger = logging.getLogger(__name__)

LOOKS: Final = 4
"""Looks, and pings, in the time that the manager allows between two of them."""
_LAST_LOOK: Final = 0.75
"""After which share of that time without a look the loop counts as blocked."""
_STANDARD_ERROR: Final = 2
MOST_TASKS: Final = 24
MOST_FRAMES: Final = 5
"""The innermost, of each task or thread; the record of it all stays under 8 KiB."""
_TRIO: Final = str(PurePath(trio.__file__).parent)


class Watchdog:
    """Compares the heartbeats of all loops with their limits."""

    def __init__(
        self,
        watched_loops: Callable[[], Sequence[WatchedLoop]],
        *,
        within: float,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Watch what `watched_loops` returns at each look.

        Args:
            within: seconds in which each loop has to show a heartbeat, and systemd wants a ping.
        """
        self.every = within / LOOKS
        self._watched_loops = watched_loops
        self._within = within
        self._wall = wall
        self._silent: dict[str, float] = {}  # since when, on trio's clock

    def look(self) -> bool:
        """Return True if all loops showed a heartbeat in time. Ask all loops for the next one."""
        now = trio.current_time()
        watched_loops = self._watched_loops()
        silent = {
            each.name: each for each in watched_loops if each.seconds_late(now) > self._within
        }
        for name, each in silent.items():
            if name not in self._silent:
                self._silent[name] = each.last_seen
                self._tell(each, now)
        for name in self._silent.keys() - silent.keys():
            seconds = now - self._silent.pop(name)
            logger.warning("%s goes on after %.0f s, or was started again", name, seconds)
        for each in watched_loops:
            each.heartbeat.probe()
        return not silent

    @contextmanager
    def awake(self) -> Iterator[Callable[[], None]]:
        """Yield a function to call in each turn of the event loop.

        If it is not called for too long, the stacks of all threads go to standard error, once.
        """

        def turn() -> None:
            late = self._within * _LAST_LOOK
            # Without a thread for it nothing is written; that passes, and the pings go on.
            with suppress(RuntimeError):
                faulthandler.dump_traceback_later(late, file=_STANDARD_ERROR)

        try:
            yield turn
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _tell(self, silent: WatchedLoop, now: float) -> None:
        seconds = now - silent.last_seen
        logger.error(
            "%s has shown no sign of life for %.0f s, since %s: until it does, the service manager "
            "is told nothing, and restarts the daemon after %g s of that. Where it stands: %s",
            silent.name,
            seconds,
            timestamp(self._wall() - timedelta(seconds=seconds)),
            self._within,
            whereabouts(silent.task),
            extra=LogEvent.WATCHDOG(actor=silent.name),
        )


def whereabouts(task: trio.lowlevel.Task) -> str:
    """The task, those below it, and the threads that they wait for; the innermost place first."""
    tasks = list(_below(task))
    names = {each.name for each in tasks}
    places = [f"{each.name} at {_stack(_frames(each))}" for each in tasks[:MOST_TASKS]]
    if len(tasks) > MOST_TASKS:
        places.append(f"and {len(tasks) - MOST_TASKS} more tasks")
    return "; ".join([*places, *_threads(names)])


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _below(child)


def _frames(task: trio.lowlevel.Task) -> list[tuple[FrameType, int]]:
    return list(task.iter_await_frames())[::-1]


def _threads(names: Iterable[str]) -> Iterator[str]:
    """Trio's worker threads that work for one of these tasks, which is in their names."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None and thread.name.partition(" from ")[2] in names:
            yield f"thread {thread.name!r} at {_stack(_callers(frame))}"


def _callers(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _stack(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Of trio's own, the one that was called: what is inside says nothing."""
    told: list[str] = []
    within_trio = False
    for frame, line in frames:
        path = frame.f_code.co_filename
        if within_trio and path.startswith(_TRIO):
            told.pop()
        within_trio = path.startswith(_TRIO)
        told.append(f"{'/'.join(PurePath(path).parts[-2:])}:{line} {frame.f_code.co_name}")
    return " < ".join(told[:MOST_FRAMES]) or "its end"
