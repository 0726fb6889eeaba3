"""Forgetting, in small pieces: ended executions beyond their retention, expired keys. And giving
back what that has emptied of the file.

An execution that has not ended, or for which a delivery waits, is never forgotten, whatever its
age; and the database would refuse to. Nor is one that an idempotency key still stands for, whose
holder would be given an id that leads nowhere.

The rows go one at a time for as long as a batch may take, since an execution has any number of
them between three and a hundred thousand. In between, others come to their turn. What a batch does
not get to is the next one's, which goes on from there: of those that are needed there may be as
many as are stored, and each is looked at once in a round.

SQLite keeps the pages that become free, for what is stored next. Some of them stay with it, since
to give one back takes moving another into its place; where the disk has no room left, none does.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from smartlinkd.store.codec import micros
from smartlinkd.store.executions import KEY_LIFETIME
from smartlinkd.store.model import Retention

BATCH_SECONDS: Final = 0.03
"""How long a batch deletes before it commits: an asker who comes in between hardly notices."""
_ROWS_AT_ONCE: Final = 100
"""Rows that are looked up together before they are deleted one by one."""
SPARE_PAGES: Final = 4096
"""Free pages that stay in the file while the disk has room: 16 MiB."""


@dataclass(frozen=True)
class Mark:
    """How far a round has come. `crew`, `finished_at` and `sequence` name the execution it looked
    at last; `cut` is the time before which that crew's executions may be forgotten; `through` says
    that all crews are done."""

    crew: str = ""
    cut: int = 0
    finished_at: int = -1
    sequence: int = -1
    through: bool = False


START: Final = Mark()
_THROUGH: Final = Mark(through=True)


@dataclass(frozen=True)
class Batch:
    """What one batch did, and where the next one goes on; None when it was its round's last."""

    forgotten: int
    mark: Mark | None


def forget_some(
    connection: sqlite3.Connection,
    now: datetime,
    retention: Retention,
    mark: Mark,
    *,
    far_keys: bool,
) -> Batch:
    """Look and delete for one batch from `mark` on, one row at the least, so that rounds end.

    With `far_keys` also the keys that a clock far ahead has made, which would stand for as long as
    it was. To a clock that is behind, all keys look like that.
    """
    give_up_at = time.monotonic() + BATCH_SECONDS
    forgotten = 0
    for executions, here in _steps(connection, now, retention, mark, far_keys):
        forgotten += executions
        if time.monotonic() >= give_up_at:
            return Batch(forgotten, here)
    return Batch(forgotten, None)


def _steps(
    connection: sqlite3.Connection,
    now: datetime,
    retention: Retention,
    mark: Mark,
    far_keys: bool,
) -> Iterator[tuple[int, Mark]]:
    """A row each; how many executions that was, and the mark behind it."""
    for _ in _expired_keys(connection, now, far_keys):
        yield 0, mark
    if not mark.through:
        yield from _executions(connection, now, retention, mark)
    for _ in _parts(connection):
        yield 0, _THROUGH


def _expired_keys(connection: sqlite3.Connection, now: datetime, far_keys: bool) -> Iterator[None]:
    """Delete them, with a stop after each."""
    far = micros(now + 2 * KEY_LIFETIME) if far_keys else None  # which no number is above
    while keys := connection.execute(
        "SELECT crew, owner, key FROM idempotency WHERE expires_at <= ? OR expires_at > ? LIMIT ?",
        (micros(now), far, _ROWS_AT_ONCE),
    ).fetchall():
        for key in keys:
            connection.execute(
                "DELETE FROM idempotency WHERE crew = ? AND owner = ? AND key = ?", tuple(key)
            )
            yield


def _executions(
    connection: sqlite3.Connection, now: datetime, retention: Retention, mark: Mark
) -> Iterator[tuple[int, Mark]]:
    for crew in _crews(connection, mark.crew):
        if crew != mark.crew:
            mark = Mark(crew, _cut(connection, now, retention, crew))
        while rows := connection.execute(
            """
            SELECT sequence, finished_at,
                EXISTS (SELECT 1 FROM deliveries WHERE execution = sequence)
                OR EXISTS (SELECT 1 FROM idempotency WHERE idempotency.execution = executions.id)
                AS is_needed
            FROM executions WHERE crew = ? AND finished_at < ?
            AND (finished_at, sequence) > (?, ?)
            ORDER BY finished_at, sequence LIMIT ?
            """,
            (crew, mark.cut, mark.finished_at, mark.sequence, _ROWS_AT_ONCE),
        ).fetchall():
            for row in rows:
                sequence = row["sequence"]
                if not row["is_needed"]:
                    connection.execute("DELETE FROM executions WHERE sequence = ?", (sequence,))
                    connection.execute("INSERT INTO forgotten VALUES (?)", (sequence,))
                mark = replace(mark, finished_at=row["finished_at"], sequence=sequence)
                yield int(not row["is_needed"]), mark


def _cut(connection: sqlite3.Connection, now: datetime, retention: Retention, crew: str) -> int:
    """Those of a crew that have ended before this may be forgotten."""
    too_old = micros(now - retention.age)
    # The oldest that still counts among the newest; none when there are fewer than that. What seems
    # to end in the future did so by a clock that was ahead: it would take the place of all others.
    oldest_kept = connection.execute(
        "SELECT finished_at FROM executions WHERE crew = ? AND finished_at <= ? "
        "ORDER BY finished_at DESC LIMIT 1 OFFSET ?",
        (crew, micros(now), retention.count - 1),
    ).fetchone()
    return too_old if oldest_kept is None else max(too_old, oldest_kept["finished_at"])


def _parts(connection: sqlite3.Connection) -> Iterator[None]:
    """Delete events and tasks of executions that are gone, with a stop after each."""
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
                    yield
        connection.execute("DELETE FROM forgotten WHERE execution = ?", tuple(row))
        yield


def give_back_some(connection: sqlite3.Connection, spare: int) -> bool:
    """Cut free pages off the file, for one batch, until no more than `spare` are left.

    Returns True if some were cut. None can be in a file that was made without `auto_vacuum`.
    """
    give_up_at = time.monotonic() + BATCH_SECONDS
    before = _free_pages(connection)
    for _ in range(before - spare):
        # One at a time: Python does one step of a statement that has no rows.
        connection.execute("PRAGMA incremental_vacuum(1)")
        if time.monotonic() >= give_up_at:
            break
    return _free_pages(connection) < before


def _free_pages(connection: sqlite3.Connection) -> int:
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    return int(free)


def _crews(connection: sqlite3.Connection, first: str) -> list[str]:
    """The names that occur from `first` on, by one look into the index for each."""
    rows = connection.execute(
        """
        WITH RECURSIVE names (crew) AS (
            SELECT min(crew) FROM executions WHERE crew >= ?
            UNION ALL
            SELECT (SELECT min(crew) FROM executions WHERE crew > names.crew)
            FROM names WHERE names.crew IS NOT NULL
        )
        SELECT crew FROM names WHERE crew IS NOT NULL
        """,
        (first,),
    )
    return [row["crew"] for row in rows]
