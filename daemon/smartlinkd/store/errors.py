"""The store's errors, and which of SQLite's errors become which of them.

A full disk, a lock of another program or an I/O error passes: the transaction is rolled back, and
the caller may try again. Damage ends the actor, since writing on would spread it. So does any other
error of SQLite (a violated constraint, a wrong statement), which is a bug.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final, TypeVar

from smartlinkd.errors import Unavailable
from smartlinkd.store.sqlite import DAMAGE, PASSING, has_room, is_bad_text, primary_code

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Unavailable)

RETRY_AFTER_S: Final = 5
_DISK_IS_FULL: Final = PASSING[sqlite3.SQLITE_FULL][0]


class DiskFull(Unavailable):
    """The disk has no room. Nothing was changed."""


class UnusableStore(Exception):  # noqa: N818 - the store is what is wrong
    """The file cannot be used as it is. The text names it and says what to do."""


class NoRoomToOpen(UnusableStore):
    """The disk is full, and SQLite has to write to open the file."""


def translate(error: sqlite3.Error, path: Path) -> Unavailable | UnusableStore | None:
    """Return what to raise in place of an error of an open file; None if the error is a bug."""
    if is_bad_text(error):
        return damaged(path, "text that is not UTF-8")
    if primary_code(error) in DAMAGE:
        return damaged(path, str(error))
    if primary_code(error) not in PASSING:
        return None
    is_full = _is_full(error, path)
    why, _ = PASSING[sqlite3.SQLITE_FULL if is_full else primary_code(error)]
    logger.warning("%s: %s (%s, %s)", path, why, error, error.sqlite_errorname)
    return _refusal(DiskFull if is_full else Unavailable, why)


def translate_at_start(error: sqlite3.Error, path: Path) -> UnusableStore | None:
    """Return what to raise in place of an error at opening; None if the error is a bug."""
    if primary_code(error) in DAMAGE:
        return damaged(path, str(error))
    if primary_code(error) not in PASSING:
        return None
    if _is_full(error, path):
        return no_room_to_open(path)
    why, remedy = PASSING[primary_code(error)]
    return UnusableStore(f"{path}: {why} ({error}); {remedy}, and start again")


def disk_full() -> DiskFull:
    """Return the refusal of a disk with too little room for something new."""
    return _refusal(DiskFull, _DISK_IS_FULL)


def file_gone(path: Path) -> Unavailable:
    """Return the refusal of a file that has lost its name: what is written to it would be lost."""
    why = "its file was removed, or moved away"
    logger.warning("%s: %s", path, why)
    return _refusal(Unavailable, why)


def no_room_to_open(path: Path) -> NoRoomToOpen:
    """Return the error of a file that only lacks room on its disk."""
    return NoRoomToOpen(f"{path}: {_DISK_IS_FULL}; make room in {path.parent}, and start again")


def damaged(path: Path, why: str) -> UnusableStore:
    """Return the error of a file that does not hold what was written into it."""
    return UnusableStore(
        f"{path} is damaged ({why}): stop the daemon and put back a backup, or save what can be "
        f"read with `sqlite3 {path} .dump`; moving it away, with the -wal file beside it, "
        "begins an empty one and forgets every execution"
    )


def _refusal(kind: type[R], why: str) -> R:
    # Without the path: a client reads this.
    return kind(
        f"the daemon's journal could not be used: {why}; nothing was changed, try again once the "
        "operator has seen to it",
        retry_after=RETRY_AFTER_S,
    )


def _is_full(error: sqlite3.Error, path: Path) -> bool:
    # SQLite reports an I/O error if its shared-memory file cannot grow, and that something cannot
    # be opened if that file cannot be made.
    code = primary_code(error)
    may_be_full = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    return code == sqlite3.SQLITE_FULL or (may_be_full and not has_room(path.parent))
