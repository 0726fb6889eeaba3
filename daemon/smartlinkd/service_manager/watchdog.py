"""Whether the daemon as a whole is alive: every loop in it has shown a sign of life lately.

The service manager restarts a daemon that it does not hear of (`WatchdogSec=`). A ping by a timer
would only prove that the event loop turns; so there is one only while every supervisor and every
actor has come round within that time (`smartlinkd/supervision/pulse.py`). What that means for each:

* An actor that answers one question after the other (the vault, the journal) has to be done with
  each within that time. Who writes to the disk, the journal and the pauses, has a minute more, for
  one that stalls, and so have those who wait for the journal: the webhooks, and the executor.
* One with many hands has to have a hand free. Where the work is long by nature (a browser's tab),
  all hands may be busy for as long as a piece of work may take, and that is added.
* The browser actor has a second loop, which keeps Chromium up: a launch, a wait between two, or a
  browser that is up but not ready has to come to its end in the time that it may take.
* A supervisor may wait for a child's start or stop as long as that child's spec says.
* A part that is down, is being started or is to be restarted is its supervisor's business.
* The facades and the control socket have no loop of their own that could hang: trio accepts and
  starts a task for each connection, all of which are bounded. Nobody waits for the parts that tell
  the owner of trouble and that reload the configuration, nor for what the executor and the journal
  do beside their mailboxes (pruning, looking at the disk).

A loop that is blocked by code without an await needs no rule: nothing is sent then. Python's own
`faulthandler`, whose thread needs nothing of ours, then writes to standard error where it stands.
"""

from __future__ import annotations

import faulthandler
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import trio

from smartlinkd.logs import Event
from smartlinkd.service_manager.whereabouts import whereabouts
from smartlinkd.supervision.pulse import Vital
from smartlinkd.wire import timestamp

logger = logging.getLogger(__name__)

LOOKS: Final = 4
"""Looks, and pings, in the time that the manager allows between two of them."""
_LAST_LOOK: Final = 0.75
"""After which share of that time without a look the loop counts as blocked."""
_STANDARD_ERROR: Final = 2


class Watchdog:
    """Looks at the `vitals`, which it is given anew for each look."""

    def __init__(
        self,
        vitals: Callable[[], Sequence[Vital]],
        *,
        within: float,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`within` so many seconds everybody has to show a sign of life, and the manager too wants
        to hear of us."""
        self.every = within / LOOKS
        self._vitals = vitals
        self._within = within
        self._wall = wall
        self._silent: dict[str, float] = {}  # since when, on trio's clock

    def look(self) -> bool:
        """Whether all have shown a sign of life in time; has all of them show the next one."""
        now = trio.current_time()
        vitals = self._vitals()
        silent = {each.name: each for each in vitals if each.overdue(now) > self._within}
        for name, each in silent.items():
            if name not in self._silent:
                self._silent[name] = each.last_sign
                self._tell(each, now)
        for name in self._silent.keys() - silent.keys():
            seconds = now - self._silent.pop(name)
            logger.warning("%s goes on after %.0f s, or was started again", name, seconds)
        for each in vitals:
            each.pulse.prompt()
        return not silent

    @contextmanager
    def awake(self) -> Iterator[Callable[[], None]]:
        """For the body: each call of what it is given says that the event loop turns. When there
        is none for too long, where all threads stand is written to standard error, once."""

        def turn() -> None:
            late = self._within * _LAST_LOOK
            # Without a thread for it nothing is written; that passes, and the pings go on.
            with suppress(RuntimeError):
                faulthandler.dump_traceback_later(late, file=_STANDARD_ERROR)

        try:
            yield turn
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _tell(self, silent: Vital, now: float) -> None:
        seconds = now - silent.last_sign
        logger.error(
            "%s has shown no sign of life for %.0f s, since %s: until it does, the service manager "
            "is told nothing, and restarts the daemon after %g s of that. Where it stands: %s",
            silent.name,
            seconds,
            timestamp(self._wall() - timedelta(seconds=seconds)),
            self._within,
            whereabouts(silent.task),
            extra=Event.WATCHDOG(actor=silent.name),
        )
