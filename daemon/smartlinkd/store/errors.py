"""The store's errors, and which of SQLite's errors become which of them.

A full disk, a lock of another program or an I/O error passes: the transaction is rolled back, and
the caller may try again. After damage the store stops, since writing on would spread it. Any other
error of SQLite (a violated constraint, a wrong statement) is a bug and ends the actor.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Final

from smartlinkd.errors import Invalid, Unavailable, Unprocessable
from smartlinkd.store.disk import has_room

logger = logging.getLogger(__name__)

RETRY_AFTER: Final = 5
"""Seconds: what passes is rarely gone sooner, and a client that asks again costs little."""

_PASSING: Final = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_BUSY: "another program holds it locked",
    sqlite3.SQLITE_LOCKED: "another program holds it locked",
    sqlite3.SQLITE_PROTOCOL: "another program holds it locked",
    sqlite3.SQLITE_IOERR: "its disk reports an error",
    sqlite3.SQLITE_READONLY: "it cannot be written to",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "it cannot be written to",
}
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class KeyReused(Unprocessable):
    """The idempotency key was used for another body within its 24 hours. Nothing was created."""


class AlreadyFinished(Invalid):
    """The execution has ended, so nothing about it changes any more. Nothing was recorded."""


class TooLarge(Invalid):
    """A value is over one of the journal's own limits. Nothing was recorded."""


class DiskFull(Unavailable):
    """There is no room for it. Nothing was changed."""


class UnusableJournal(Exception):  # noqa: N818 - it is the journal that is wrong
    """The file cannot be used as it is; the text names it and says what to do."""


class NoRoomToOpen(UnusableJournal):
    """Its disk is full. To open it takes writing a little beside it."""


def explained(error: sqlite3.Error, path: Path) -> Unavailable | UnusableJournal | None:
    """What to raise in place of an error while serving; None when it is a bug, and stays."""
    if _code(error) in _DAMAGE:
        return damaged(path, str(error))
    if isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode"):
        # The module's own: its text would repeat the content.
        return damaged(path, "text that is not UTF-8")
    why = _PASSING.get(_code(error))
    if why is None:
        return None
    is_full = _is_full(error, path)
    why = _PASSING[sqlite3.SQLITE_FULL] if is_full else why
    logger.warning("%s: %s (%s, %s)", path, why, error, error.sqlite_errorname)
    return _refusal(DiskFull if is_full else Unavailable, why)


def no_room() -> Unavailable:
    """Too little is free to begin something new, though SQLite may still find a page for it."""
    return _refusal(DiskFull, _PASSING[sqlite3.SQLITE_FULL])


def not_there(path: Path) -> Unavailable:
    """The open file has lost its name: what is written to it ends with this process."""
    why = "its file was removed, or moved away"
    logger.warning("%s: %s", path, why)
    return _refusal(Unavailable, why)


def explained_at_start(error: sqlite3.Error, path: Path) -> UnusableJournal | None:
    """What to raise in place of an error while opening; None when it is a bug, and stays."""
    if _code(error) in _DAMAGE:
        return damaged(path, str(error))
    why = _PASSING.get(_code(error))
    if why is None:
        return None
    if _is_full(error, path):
        return no_room_to_open(path)
    return UnusableJournal(
        f"{path}: {why} ({error}); let the daemon's user write to it and to its folder, make "
        "room, end the other program, and start again"
    )


def no_room_to_open(path: Path) -> NoRoomToOpen:
    """Nothing is wrong with the file, and all with its disk."""
    return NoRoomToOpen(
        f"{path}: {_PASSING[sqlite3.SQLITE_FULL]}; make room in {path.parent}, and start again"
    )


def damaged(path: Path, why: str) -> UnusableJournal:
    """The file does not hold what was written into it."""
    return UnusableJournal(
        f"{path} is damaged ({why}): stop the daemon and put back a backup, or save what can be "
        f"read with `sqlite3 {path} .dump`; moving it away, with the -wal file beside it, "
        "begins an empty one and forgets every execution"
    )


def _refusal(kind: type[Unavailable], why: str) -> Unavailable:
    # Without the path: a client reads this.
    return kind(
        f"the daemon's journal could not be used: {why}; nothing was changed, try again once the "
        "operator has seen to it",
        retry_after=RETRY_AFTER,
    )


def _is_full(error: sqlite3.Error, path: Path) -> bool:
    """Where the file that the readers share cannot grow, SQLite calls that an I/O error, and where
    it cannot be made, that something cannot be opened."""
    code = _code(error)
    may_be_it = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
    return code == sqlite3.SQLITE_FULL or (may_be_it and not has_room(path.parent))


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 when the error is the Python module's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
