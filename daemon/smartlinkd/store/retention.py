"""Pruning: ended executions beyond their retention, and expired idempotency keys, in batches.

An execution stays until it has ended, its webhook deliveries are done, and its idempotency key has
expired: a client that repeats the key must get an id that exists. A batch stops after a short time,
since an execution has between three rows and a hundred thousand.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from smartlinkd.store.codec import micros
from smartlinkd.store.executions import KEY_LIFETIME
from smartlinkd.store.model import Retention

_ROWS_AT_ONCE: Final = 100
"""Rows that are selected together before they are deleted one by one."""


@dataclass(frozen=True)
class PruneBatch:
    """The result of one batch: executions that were deleted, and whether more is to be deleted."""

    executions: int
    has_more: bool


def prune_some(
    connection: sqlite3.Connection,
    now: datetime,
    retention: Retention,
    *,
    far_keys: bool,
    seconds: float,
) -> PruneBatch:
    """Delete for about so many seconds, one row at the least.

    Args:
        far_keys: delete also the keys that a clock far ahead has made, which would be valid for as
            long as the clock was ahead. To a clock that is behind, all keys look like that.
    """
    deadline = time.monotonic() + seconds
    pruned = 0
    for executions in _deletions(connection, now, retention, far_keys):
        pruned += executions
        if time.monotonic() >= deadline:
            return PruneBatch(pruned, has_more=True)
    return PruneBatch(pruned, has_more=False)


def _deletions(
    connection: sqlite3.Connection, now: datetime, retention: Retention, far_keys: bool
) -> Iterator[int]:
    """Delete one row for each turn, and yield the number of executions that were deleted with it.

    Keys go first, since they keep their executions.
    """
    for _ in _delete_keys(connection, now, far_keys):
        yield 0
    for crew in _crews(connection):
        for _ in _delete_executions(connection, crew, _cut(connection, now, retention, crew)):
            yield 1
    for _ in _delete_parts(connection):
        yield 0


def _delete_keys(connection: sqlite3.Connection, now: datetime, far_keys: bool) -> Iterator[None]:
    far = micros(now + 2 * KEY_LIFETIME) if far_keys else None  # no number is above null
    while keys := connection.execute(
        "SELECT crew, owner, key FROM idempotency WHERE expires_at <= ? OR expires_at > ? LIMIT ?",
        (micros(now), far, _ROWS_AT_ONCE),
    ).fetchall():
        for key in keys:
            connection.execute(
                "DELETE FROM idempotency WHERE crew = ? AND owner = ? AND key = ?", tuple(key)
            )
            yield


def _delete_executions(connection: sqlite3.Connection, crew: str, cut: int) -> Iterator[None]:
    while rows := connection.execute(
        """
        SELECT sequence FROM executions WHERE crew = ? AND finished_at < ?
        AND NOT EXISTS (SELECT 1 FROM deliveries WHERE execution = sequence)
        AND NOT EXISTS (SELECT 1 FROM idempotency WHERE idempotency.execution = executions.id)
        ORDER BY finished_at LIMIT ?
        """,
        (crew, cut, _ROWS_AT_ONCE),
    ).fetchall():
        for row in rows:
            connection.execute("DELETE FROM executions WHERE sequence = ?", tuple(row))
            connection.execute("INSERT INTO pruned VALUES (?)", tuple(row))
            yield


def _cut(connection: sqlite3.Connection, now: datetime, retention: Retention, crew: str) -> int:
    """Return the time before which executions of a crew must have ended to be deleted."""
    too_old = micros(now - retention.age)
    # The oldest of the newest `count`; none if there are fewer. An end in the future comes of a
    # clock that was ahead. It does not count, or it would take the place of a real one.
    oldest_kept = connection.execute(
        "SELECT finished_at FROM executions WHERE crew = ? AND finished_at <= ? "
        "ORDER BY finished_at DESC LIMIT 1 OFFSET ?",
        (crew, micros(now), retention.count - 1),
    ).fetchone()
    return too_old if oldest_kept is None else max(too_old, oldest_kept["finished_at"])


def _delete_parts(connection: sqlite3.Connection) -> Iterator[None]:
    """Delete events and tasks of executions that are gone."""
    while execution := connection.execute("SELECT execution FROM pruned LIMIT 1").fetchone():
        for table in ("events", "tasks"):
            while parts := connection.execute(
                f"SELECT rowid FROM {table} WHERE execution = ? LIMIT ?",  # noqa: S608 - our names
                (*execution, _ROWS_AT_ONCE),
            ).fetchall():
                for part in parts:
                    connection.execute(f"DELETE FROM {table} WHERE rowid = ?", tuple(part))  # noqa: S608
                    yield
        connection.execute("DELETE FROM pruned WHERE execution = ?", tuple(execution))
        yield


def _crews(connection: sqlite3.Connection) -> list[str]:
    """Return the crews' names, by one look into the index for each."""
    rows = connection.execute(
        """
        WITH RECURSIVE names (crew) AS (
            SELECT min(crew) FROM executions
            UNION ALL
            SELECT (SELECT min(crew) FROM executions WHERE crew > names.crew)
            FROM names WHERE names.crew IS NOT NULL
        )
        SELECT crew FROM names WHERE crew IS NOT NULL
        """
    )
    return [row["crew"] for row in rows]
