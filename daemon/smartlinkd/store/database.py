"""The store's database `journal.sqlite3`: its tables, and the pruning of them.

An execution stays until it has ended, its webhook deliveries are done, and its idempotency key has
expired: a client that repeats the key must get an id that exists. An execution has between three
rows and a hundred thousand, so a batch of pruning has a bound for executions and one for rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import SecretBytes

from smartlinkd.store.codec import micros
from smartlinkd.store.executions import Executions
from smartlinkd.store.file import StoreFile
from smartlinkd.store.model import Retention, StoreLimits
from smartlinkd.store.outbox import Outbox
from smartlinkd.store.sealing import Seal
from smartlinkd.store.sqlite import checkpoint, pragma, release_pages

_EXECUTIONS: Final = 10
"""Executions of a crew in one batch: a disk that is nearly full must have room for its log."""


class StoreDatabase:
    """The tables in an open file. Beside the errors named, each method raises as `StoreFile`."""

    def __init__(self, path: Path, key: SecretBytes, *, limits: StoreLimits | None = None) -> None:
        """Open the file; a missing one is made.

        Args:
            key: webhook credentials that are under another key are lost.

        Raises `UnusableStore`, of which `NoRoomToOpen` is one.
        """
        self._limits = limits or StoreLimits()
        self._file = StoreFile(path, busy_timeout_s=self._limits.busy_timeout_s)
        self.outbox = Outbox(self._file, Seal(key), self._limits)
        self.executions = Executions(self._file, self.outbox, self._limits)

    def close(self) -> None:
        """Close the file. What was written stays written."""
        self._file.close()

    def run_together(self, works: Sequence[Callable[[StoreDatabase], object]]) -> list[object]:
        """Do the works in order and in one transaction, and return their results.

        The last ones are left out when enough was read. Raises as `StoreFile.shared`.
        """
        self.executions.chars_read = 0
        results: list[object] = []
        with self._file.shared():
            for work in works:
                results.append(work(self))
                if self.executions.chars_read > self._limits.chars_together:
                    break
        return results

    def prune_some(self, now: datetime, kept: Retention) -> tuple[int, bool]:
        """Delete one batch of what is beyond its retention.

        Return how many executions were deleted, and True if there may be more to delete. Expired
        keys go first, since they keep their executions.
        """
        with self._file.writing():
            connection = self._file.connection
            connection.execute("DELETE FROM idempotency WHERE expires_at <= ?", (micros(now),))
            crews = connection.execute("SELECT DISTINCT crew FROM executions").fetchall()
            deleted = sum(_delete_executions(connection, now, kept, *crew) for crew in crews)
            has_parts = _delete_parts(connection, self._limits.pruned_rows)
            return deleted, has_parts or deleted > 0

    def release_some_pages(self) -> bool:
        """Cut some free pages off the file. Return False if there were none to cut."""
        with self._file.writing():
            return release_pages(self._file.connection, most=self._limits.pages_at_once)

    def checkpoint(self) -> None:
        """Write the log into the file, and cut both on the disk.

        In a shared transaction this fails, and is done alone then.
        """
        with self._file.reading():
            checkpoint(self._file.connection)

    def has_room(self) -> bool:
        """Return True if the disk has room, and takes a write."""
        if not self._file.has_room():
            return False
        with self._file.writing():
            version = pragma(self._file.connection, "user_version")
            # SQLite writes it all the same.
            self._file.connection.execute(f"PRAGMA user_version = {version}")
        return True


def _delete_executions(
    connection: sqlite3.Connection, now: datetime, retention: Retention, crew: str
) -> int:
    """Delete some of a crew's executions, and note which. Return how many."""
    deleted = connection.execute(
        """
        DELETE FROM executions WHERE sequence IN (
            SELECT sequence FROM executions WHERE crew = ? AND finished_at < ?
            AND NOT EXISTS (SELECT 1 FROM deliveries WHERE execution = sequence)
            AND NOT EXISTS (SELECT 1 FROM idempotency WHERE idempotency.execution = executions.id)
            ORDER BY finished_at LIMIT ?
        )
        RETURNING sequence
        """,
        (crew, _cut(connection, now, retention, crew), _EXECUTIONS),
    ).fetchall()
    connection.executemany("INSERT INTO pruned VALUES (?)", map(tuple, deleted))
    return len(deleted)


def _cut(connection: sqlite3.Connection, now: datetime, retention: Retention, crew: str) -> int:
    """Return the time before which executions of a crew must have ended to be deleted."""
    too_old = micros(now - retention.age)
    # The oldest of the newest `count`; none if there are fewer. What seems to have ended in the
    # future, by a clock that was ahead, takes the place of no other.
    oldest_kept = connection.execute(
        "SELECT finished_at FROM executions WHERE crew = ? AND finished_at <= ? "
        "ORDER BY finished_at DESC LIMIT 1 OFFSET ?",
        (crew, micros(now), retention.count - 1),
    ).fetchone()
    return too_old if oldest_kept is None else max(too_old, oldest_kept["finished_at"])


def _delete_parts(connection: sqlite3.Connection, most: int) -> bool:
    """Delete at most so many events and tasks of executions that are gone.

    Return True if some may be left.
    """
    for execution in connection.execute("SELECT execution FROM pruned").fetchall():
        for table in ("events", "tasks"):
            most -= connection.execute(
                f"DELETE FROM {table} WHERE rowid IN "  # noqa: S608 - our names
                f"(SELECT rowid FROM {table} WHERE execution = ? LIMIT ?)",
                (*execution, most),
            ).rowcount
        if most <= 0:
            return True
        connection.execute("DELETE FROM pruned WHERE execution = ?", tuple(execution))
    return False
