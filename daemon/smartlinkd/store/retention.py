"""Pruning: ended executions beyond their retention, and expired idempotency keys, in batches.

An execution stays until it has ended, its webhook deliveries are done, and its idempotency key has
expired: a client that repeats the key must get an id that exists. An execution has between three
rows and a hundred thousand, so a batch is bounded by both.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from smartlinkd.store.codec import micros
from smartlinkd.store.model import Retention

_EXECUTIONS: Final = 10
"""Executions of a crew in one batch. On a disk that is nearly full there must be room for its log."""


@dataclass(frozen=True)
class PruneBatch:
    """The result of one batch: executions that were deleted, and whether more is to be deleted."""

    executions: int
    has_more: bool


def prune_some(
    connection: sqlite3.Connection, now: datetime, retention: Retention, *, most_rows: int
) -> PruneBatch:
    """Delete some executions, and at most so many events and tasks of deleted ones.

    Expired keys go first, since they keep their executions.
    """
    connection.execute("DELETE FROM idempotency WHERE expires_at <= ?", (micros(now),))
    crews = connection.execute("SELECT DISTINCT crew FROM executions").fetchall()
    deleted = sum(_delete_executions(connection, now, retention, *crew) for crew in crews)
    has_more = _delete_parts(connection, most_rows)
    return PruneBatch(deleted, has_more or deleted > 0)


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
    # The oldest of the newest `count`; none if there are fewer.
    oldest_kept = connection.execute(
        "SELECT finished_at FROM executions WHERE crew = ? AND finished_at IS NOT NULL "
        "ORDER BY finished_at DESC LIMIT 1 OFFSET ?",
        (crew, retention.count - 1),
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
