"""Forgetting, in small pieces: ended executions beyond their retention, expired keys.

An execution that has not ended, or for which a delivery waits, is never forgotten, whatever its
age; and the database would refuse to. Nor is one that an idempotency key still stands for, whose
holder would be given an id that leads nowhere.

The rows go one at a time for as long as a batch may take, since an execution has any number of
them between three and a hundred thousand. In between, others come to their turn. What a batch does
not get to is the next one's: it is found by the same questions.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Final

from daemon.journal.columns import micros
from daemon.journal.model import Retention

BATCH_SECONDS: Final = 0.03
"""How long a batch deletes before it commits: an asker who comes in between hardly notices."""
_ROWS_AT_ONCE: Final = 100
"""Rows that are looked up together before they are deleted one by one."""


@dataclass(frozen=True)
class Batch:
    """What one batch did. Not `done`: another one has more to do."""

    forgotten: int
    done: bool


def forget_some(connection: sqlite3.Connection, now: datetime, retention: Retention) -> Batch:
    """Delete for one batch; at least one row, so that batches come to an end."""
    give_up_at = time.monotonic() + BATCH_SECONDS
    forgotten = 0
    steps = chain(
        _expired_keys(connection, now), _executions(connection, now, retention), _parts(connection)
    )
    for executions in steps:
        forgotten += executions
        if time.monotonic() >= give_up_at:
            return Batch(forgotten, done=False)
    return Batch(forgotten, done=True)


# Each of these deletes a row a step, and says how many executions that was.


def _expired_keys(connection: sqlite3.Connection, now: datetime) -> Iterator[int]:
    while keys := connection.execute(
        "SELECT crew, owner, key FROM idempotency WHERE expires_at <= ? LIMIT ?",
        (micros(now), _ROWS_AT_ONCE),
    ).fetchall():
        for key in keys:
            connection.execute(
                "DELETE FROM idempotency WHERE crew = ? AND owner = ? AND key = ?", tuple(key)
            )
            yield 0


def _executions(
    connection: sqlite3.Connection, now: datetime, retention: Retention
) -> Iterator[int]:
    for crew in _crews(connection):
        cut = micros(now - retention.age)
        # The oldest that still counts among the newest; none when there are fewer than that.
        oldest_kept = connection.execute(
            "SELECT finished_at FROM executions WHERE crew = ? AND finished_at IS NOT NULL "
            "ORDER BY finished_at DESC LIMIT 1 OFFSET ?",
            (crew, retention.count - 1),
        ).fetchone()
        if oldest_kept is not None:
            cut = max(cut, oldest_kept["finished_at"])
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
                connection.execute("INSERT INTO forgotten VALUES (?)", tuple(row))
                yield 1


def _parts(connection: sqlite3.Connection) -> Iterator[int]:
    """Events and tasks of executions that are gone."""
    while (
        row := connection.execute("SELECT execution FROM forgotten LIMIT 1").fetchone()
    ) is not None:
        for find, delete in (
            (
                "SELECT rowid FROM events WHERE execution = ? LIMIT ?",
                "DELETE FROM events WHERE rowid = ?",
            ),
            (
                "SELECT rowid FROM tasks WHERE execution = ? LIMIT ?",
                "DELETE FROM tasks WHERE rowid = ?",
            ),
        ):
            while parts := connection.execute(find, (row["execution"], _ROWS_AT_ONCE)).fetchall():
                for part in parts:
                    connection.execute(delete, tuple(part))
                    yield 0
        connection.execute("DELETE FROM forgotten WHERE execution = ?", tuple(row))
        yield 0


def _crews(connection: sqlite3.Connection) -> list[str]:
    """The names that occur, by one look into the index for each."""
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
