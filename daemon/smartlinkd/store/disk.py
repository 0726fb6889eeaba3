"""Whether the disk under the journal takes more, and the one place that says so when that changes.

A full disk is every asker's refusal, of which there may be hundreds. The owner is told once, when
the first write is refused, a worker's folder finds no room, or a round of forgetting is over and
sees it, and once when there is room again.
For that nobody waits until a client comes: while the disk is full the journal itself looks every
few seconds, and writes something.

Of a disk that is full before the journal was ever open, the log alone tells: a daemon that ends by
that is started again and again, and each would tell the owner anew.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from smartlinkd.logs import LogEvent

logger = logging.getLogger(__name__)

ROOM: Final = 1024 * 1024
"""Bytes that have to be free: SQLite writes over old pages without needing any, for a while."""
LOOK_EVERY: Final = 5.0
"""Seconds between two looks while it is full."""

TellFull = Callable[[bool], None]
"""Called with True when the disk is full, with False when there is room again."""


def tell_nobody(_full: bool) -> None:
    """For an owner who wants to be told of nothing."""


def has_room(folder: Path, beyond: int = 0) -> bool:
    """Whether its file system has room for our user, as far as it tells, also when so many bytes
    more are written. Blocks."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return True  # whatever is wrong with it, that is another matter
    has_inodes = status.f_favail > 0 or status.f_files == 0  # some file systems count none
    return status.f_bavail * status.f_frsize >= ROOM + beyond and has_inodes


class Disk:
    """The state of the journal's disk. It outlives the journal's instances."""

    def __init__(self, folder: Path, tell: TellFull) -> None:
        self._folder = folder
        self._tell = tell
        self._full = trio.Event()
        self._room = trio.Event()  # set when it is not full any more, and then another

    async def wait_for_room(self, at_most: float) -> None:
        """Wait until it is not full any more, so many seconds at most."""
        with trio.move_on_after(at_most):
            await self._room.wait()

    def is_full(self) -> bool:
        """Whether that was noted, and no room since."""
        return self._full.is_set()

    async def wait_full(self) -> None:
        """Wait until it is full."""
        await self._full.wait()

    def note_full(self) -> None:
        """A write was refused for it."""
        if not self._full.is_set():
            self._full.set()
            text = "the disk of %s is full: nothing new can be kept until there is room"
            logger.error(text, self._folder, extra=LogEvent.DISK_FULL())
            self._tell(True)

    def note_full_before_start(self) -> None:
        """There is no room to begin with."""
        text = "the disk of %s is full: the daemon starts when there is room"
        logger.error(text, self._folder, extra=LogEvent.DISK_FULL())

    def note_room(self) -> None:
        """A write was made again, and there is room for more."""
        if self._full.is_set():
            self._full = trio.Event()
            self._room.set()
            self._room = trio.Event()
            text = "the disk of %s has room again"
            logger.warning(text, self._folder, extra=LogEvent.DISK_HAS_ROOM())
            self._tell(False)
