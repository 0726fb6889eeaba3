"""Bytes beside the journal for the day on which its disk is full.

The problem: to forget something, SQLite first writes, to its log and from there to the file. Where
nothing at all is left for that, a journal that has filled its disk makes no room any more. Nor can
it be opened, for which a small file is made that its readers share; and without it no part serves.

The choice: a file that is removed for as long as one such piece of work takes, and made again with
it. All that happens in one visit to the journal's thread, so nothing else that the journal is asked
uses it up. It is made when the journal serves already. What others on that disk take of it, is
missing until there is room again.

Rejected: to remove it once and for all (what runs would fill that too, before anything is
forgotten), and a file with a hole (of a size, but without bytes that could be given up).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from smartlinkd.store.disk import ROOM

logger = logging.getLogger(__name__)

SIZE: Final = 8 * 1024 * 1024
"""Bytes: twice what the log grows to before SQLite brings it into the file, which may grow by all
of that."""
_SHARE: Final = 16
"""On a small disk it is this part of it at the most."""
_BLOCK: Final = 512
"""Bytes of what `st_blocks` counts."""


class Reserve:
    """The file. All methods block, and do without it where they must."""

    def __init__(self, journal: Path) -> None:
        self._path = journal.with_name(f"{journal.name}.reserve")

    def keep(self) -> None:
        """Make it, or make it whole, as far as that leaves room beside it, and for the log."""
        self._make(leaving_room=True)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """What is done in the block may use it up."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s cannot be removed: %s", self._path, error.strerror)
        try:
            yield
        finally:
            self._make(leaving_room=False)

    def _make(self, *, leaving_room: bool) -> None:
        try:
            disk = os.statvfs(self._path.parent)
            whole = min(SIZE, disk.f_blocks * disk.f_frsize // _SHARE)
            there = self._bytes()
            free = there + disk.f_bavail * disk.f_frsize
            # A third is for the log, which grows to half of what this is when it is whole.
            size = min(whole, (free - ROOM) * 2 // 3 if leaving_room else free)
            if size > there:
                self._allocate(size)
        except OSError as error:
            logger.debug("%s is not whole: %s", self._path, error.strerror)

    def _bytes(self) -> int:
        """Those on the disk, which of a file that was copied may be none."""
        try:
            return self._path.stat().st_blocks * _BLOCK
        except FileNotFoundError:
            return 0

    def _allocate(self, size: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            os.posix_fallocate(file, 0, size)
        finally:
            os.close(file)
