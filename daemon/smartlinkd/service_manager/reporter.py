"""The part that keeps the service manager informed, for as long as anything runs.

It starts before all other parts and ends after them, so that the long minutes of a shutdown are
told too. It is supervised like every part; while it is down nothing is said, which is what the
watchdog is for.

`READY=1` is not said here but where all has started (`smartlinkd/tree.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from smartlinkd.nurseries import sole_error
from smartlinkd.operator import StatusReport
from smartlinkd.service_manager.link import Link
from smartlinkd.service_manager.status_line import ending_line, status_line
from smartlinkd.service_manager.watchdog import Watchdog
from smartlinkd.supervision.child import ChildSnapshot
from smartlinkd.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = 1.0
"""Seconds between two looks at how the daemon is: as often as its line may change."""
EXTENSION: Final = 10.0
"""Seconds that are asked for at a time while it starts or stops; should it hang then, it is these
that the manager waits in vain."""
EXTEND_EVERY: Final = 2.0
GRACE: Final = 1.0
"""Seconds for its own end, which takes no time."""
MARGIN: Final = 5.0
"""Seconds beyond all graces, for what is cancelled then to end."""


class Reporter:
    """One instance is `run`."""

    def __init__(
        self,
        link: Link,
        *,
        status: Callable[[], Awaitable[StatusReport]],
        parts: Callable[[], Sequence[ChildSnapshot]],
        whole: Callable[[], Supervisor],
    ) -> None:
        """`whole` gives the supervisor of everything, this included: it is made after this."""
        self._link = link
        self._status = status
        self._parts = parts
        self._whole = whole
        self._stop = trio.Event()

    def stop(self) -> None:
        """All others have ended."""
        self._stop.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Report until stopped."""
        self._stop = trio.Event()
        whole = self._whole()
        async with sole_error(), trio.open_nursery() as nursery:
            if self._link.watchdog is not None:
                nursery.start_soon(
                    self._watch, Watchdog(whole.watched_loops, within=self._link.watchdog)
                )
            task_status.started()
            async with sole_error(), trio.open_nursery() as until_the_end:
                until_the_end.start_soon(self._tell_status)
                await whole.wait_ending()
                until_the_end.cancel_scope.cancel()
            await self._tell_the_end(longest=whole.longest_end + MARGIN)
            nursery.cancel_scope.cancel()

    async def _watch(self, watchdog: Watchdog) -> None:
        with watchdog.awake() as turn:
            while True:
                turn()
                if watchdog.look():
                    self._link.alive()
                await trio.sleep(watchdog.every)

    async def _tell_status(self) -> None:
        while True:
            self._link.retry()
            if self._link.starting:  # which the supervisor bounds, part by part
                self._link.extend(EXTENSION)
            try:
                self._link.status(status_line(await self._status()))
            except Exception:  # a bug in what is told is no reason to end what it tells of
                logger.exception("the service manager cannot be told how things are")
            await trio.sleep(LOOK_EVERY)

    async def _tell_the_end(self, *, longest: float) -> None:
        self._link.stopping()
        until = trio.current_time() + longest
        while not self._stop.is_set():
            self._link.retry()
            self._link.status(ending_line(self._parts()))
            if trio.current_time() < until:
                self._link.extend(EXTENSION)
            with trio.move_on_after(EXTEND_EVERY):
                await self._stop.wait()
