"""The state of the store's disk: full or not, and the owner's notice when that changes.

A full disk is refused to every caller, of whom there may be hundreds. The owner is notified once
when it is full, and once when there is room again. docs/decisions/051-full-disk.md tells about the
room that is left.
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
"""The free bytes without which a disk counts as full. SQLite may still find a page for a while."""

NotifyFull = Callable[[bool], None]
"""Called with True when the disk is full, with False when there is room again."""


def notify_nobody(_full: bool) -> None:
    """Notify nobody."""


def has_room(folder: Path, beyond: int = 0) -> bool:
    """Return True if the file system of `folder` has room for `beyond` bytes more. Blocks."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return True  # a fault of another kind, which a write will report
    has_inodes = status.f_favail > 0 or status.f_files == 0  # some file systems count none
    return status.f_bavail * status.f_frsize >= ROOM + beyond and has_inodes


class Disk:
    """The state of the store's disk. It outlives the actor's instances."""

    def __init__(self, folder: Path, notify: NotifyFull) -> None:
        self._folder = folder
        self._notify = notify
        self._full = trio.Event()
        self._room = trio.Event()  # set when the disk is not full any more, and then replaced

    async def wait_for_room(self, at_most_s: float) -> None:
        """Wait until the disk is not full any more, so many seconds at most."""
        with trio.move_on_after(at_most_s):
            await self._room.wait()

    def is_full(self) -> bool:
        """Return True from `note_full` to `note_room`."""
        return self._full.is_set()

    async def wait_full(self) -> None:
        """Wait until the disk is full."""
        await self._full.wait()

    def note_full(self) -> None:
        """Note that a write was refused. The first time, log it and notify the owner."""
        if not self._full.is_set():
            self._full.set()
            text = "the disk of %s is full: nothing new can be kept until there is room"
            logger.error(text, self._folder, extra=LogEvent.DISK_FULL())
            self._notify(True)

    def note_room(self) -> None:
        """Note that a write was made again. Log it and notify the owner, if the disk was full."""
        if self._full.is_set():
            self._full = trio.Event()
            self._room.set()
            self._room = trio.Event()
            text = "the disk of %s has room again"
            logger.warning(text, self._folder, extra=LogEvent.DISK_HAS_ROOM())
            self._notify(False)
