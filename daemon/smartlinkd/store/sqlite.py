"""Opens the daemon's SQLite files and brings their tables up to date.

`PRAGMA user_version` counts the migrations that a file has had. They go forward only, in one
transaction with the new number. A file of a newer version is refused, and nothing in it changed.
docs/decisions/052-upgrades-of-the-store.md tells about the copy that an upgrade keeps.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

BUSY_TIMEOUT_S: Final = 2.0
"""How long a statement waits for a lock of another program."""
ROOM: Final = 1024 * 1024
"""The free bytes without which a disk counts as full (docs/decisions/051-full-disk.md). SQLite may
still find a page for a while."""
DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
PASSING: Final = {
    sqlite3.SQLITE_FULL: ("its disk is full", "make room on it"),
    sqlite3.SQLITE_BUSY: ("another program holds it locked", "end that program"),
    sqlite3.SQLITE_IOERR: ("its disk reports an error", "look at the disk"),
    sqlite3.SQLITE_READONLY: (
        "it cannot be written to",
        "let the daemon's user write to it and to its folder",
    ),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "let the daemon's user open it"),
}
"""Faults that pass, so that a call may be tried again: the fault and the remedy, by result code."""


class NewerFile(Exception):  # noqa: N818 - it names what is the matter
    """A newer daemon wrote the file. Nothing was changed in it."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"version {version} of the file, this one knows {known}")


@dataclass(frozen=True)
class Schema:
    """The tables of a file, and how its log is kept."""

    migrations: Sequence[Sequence[str]]
    """The n-th leads from version n to n + 1. One that was released never changes."""
    synchronous: Literal["NORMAL", "FULL"]
    """SQLite's pragma. FULL keeps what was committed also when the power fails."""
    wal_bytes: int
    """SQLite cuts its log to this size after a large transaction."""
    keeps_copy: bool
    """True if an upgrade leaves a copy of the file as it was; see `copy_of`."""


def open_database(
    path: Path, schema: Schema, *, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> sqlite3.Connection:
    """Open a file with all tables; a missing one is made with mode 0600.

    The connection may be used from any thread, by one at a time. Transactions are begun by hand.

    Raises:
        NewerFile: see there.
        sqlite3.Error, OSError: the file cannot be used.
    """
    if not path.exists():
        _make_private(path)
    connection = sqlite3.connect(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    try:
        _refuse_newer(connection, schema)
        _configure(connection, schema)
        _migrate(connection, schema, path)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction, which is rolled back if the block raises."""
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def release_pages(connection: sqlite3.Connection, *, most: int, spare: int = 0) -> bool:
    """Cut at most so many free pages off the file, and leave `spare` of them. Return True if any.

    The file on the disk is shorter after a checkpoint. A file that was made without `auto_vacuum`
    keeps its size.
    """
    before = pragma(connection, "freelist_count")
    for _ in range(min(before - spare, most)):
        # One at a time: Python does one step of a statement that has no rows.
        connection.execute("PRAGMA incremental_vacuum(1)")
    return pragma(connection, "freelist_count") < before


def checkpoint(connection: sqlite3.Connection) -> None:
    """Write the log into the file, and cut both on the disk. Fails in a transaction."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a pragma that is a number."""
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def primary_code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 if the error is the Python module's own."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    """Return True if the error means that the file is damaged."""
    # Text that is not UTF-8 is an error of the Python module's own, which has no code.
    return primary_code(error) in DAMAGE or is_bad_text(error)


def is_bad_text(error: sqlite3.Error) -> bool:
    """Return True if a text in the file is not UTF-8. The error's own text repeats it."""
    return isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")


def copy_of(path: Path, version: int) -> Path:
    """Return where an upgrade keeps the file as it was in that version."""
    return path.with_name(f"{path.name}.version-{version}")


def copies_of(path: Path) -> list[Path]:
    """Return the copies that upgrades have kept."""
    return sorted(path.parent.glob(f"{path.name}.version-*"))


def _refuse_newer(connection: sqlite3.Connection, schema: Schema) -> None:
    version = pragma(connection, "user_version")
    if version > len(schema.migrations):
        raise NewerFile(version, len(schema.migrations))


def _configure(connection: sqlite3.Connection, schema: Schema) -> None:
    connection.row_factory = sqlite3.Row
    # Before the first page is written: later it changes nothing.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA synchronous = {schema.synchronous}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Some builds overwrite what is deleted, which makes a deletion as slow as a write.
    connection.execute("PRAGMA secure_delete = FAST")
    connection.execute(f"PRAGMA journal_size_limit = {schema.wal_bytes}")


def _migrate(connection: sqlite3.Connection, schema: Schema, path: Path) -> None:
    first = pragma(connection, "user_version")
    if schema.keeps_copy and 0 < first < len(schema.migrations):
        _copy(connection, copy_of(path, first))
    # Also if there is nothing to migrate: a file that cannot be written to is better known at once.
    with transaction(connection):
        for version, migration in enumerate(schema.migrations[first:], first + 1):
            for statement in migration:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")


def _copy(connection: sqlite3.Connection, copy: Path) -> None:
    fresh = copy.with_name(f"{copy.name}.new")
    try:
        fresh.unlink(missing_ok=True)
        _make_private(fresh)
        with closing(sqlite3.connect(fresh)) as target:
            connection.backup(target)
        fresh.replace(copy)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _make_private(path: Path) -> None:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def has_room(folder: Path, beyond: int = 0) -> bool:
    """Return True if the disk of `folder` has an inode, `ROOM` and `beyond` bytes free. Blocks."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return True  # a fault of another kind, which a write will report
    has_inodes = status.f_favail > 0 or status.f_files == 0  # some file systems count none
    return status.f_bavail * status.f_frsize >= ROOM + beyond and has_inodes
