"""The tables, and how a file gets them.

`PRAGMA user_version` counts the migrations that a file has had. They go forward only, in one
transaction together with the new number. A file from a newer daemon is refused before anything is
written to it, be it only what closing it would write: its version is read through a connection
that is not able to write.

An upgrade that does not come up is taken back, and the old daemon then has to get on with the file.
So what that one need not know of, and yet keeps true, is no migration but an addition: a table that
triggers fill, an index. Rejected: a new version for each change. The old daemon would be refused
its own journal.

Some choices in the tables:

* An execution's `sequence` is its place in the order of creation, and what the other tables call
  it by; AUTOINCREMENT, since the number of one that is forgotten must not come back.
* What is large and never changes (`kickoffs`) is not in the row that changes at each step: SQLite
  writes a whole row whenever a part of it changes.
* What must not happen, the database itself refuses: two executions for one idempotency key, an
  execution that has ended without a time or the other way round, one forgotten while a delivery
  waits.
* What is due is looked for among `first_deliveries`, which the database itself keeps: a target has
  one there for each kind of calls, however many wait behind it. So with `failed_deliveries`, which
  tell since when one is owed that was put off: their own row has only when they are due again; and
  with `owed_bytes`, since nobody is to add up 100 000 rows with each step of a worker.
* Two columns are written no more, since nobody has read them: `executions.token_usage`, of which
  the webhook tells, and `deliveries.last_error`, of which the log does.
* `events` and `tasks` may be many: when an execution is forgotten, its row goes first, its number
  comes into `forgotten`, and they are swept away piecemeal.

Pages that are free can be given back to the disk (`auto_vacuum`), if SQLite is told so before the
first table. A file from before that is written anew once, at a start, if it is small; a larger
one keeps its size until somebody does it by hand (docs/operating.md). Rejected: to do it with any
file, since nobody is answered meanwhile, and a start may take 30 s.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from smartlinkd.journal.disk import has_room
from smartlinkd.journal.errors import UnusableJournal
from smartlinkd.journal.faults import explained_at_start, no_room_to_open
from smartlinkd.state_files import disk_is_full

logger = logging.getLogger(__name__)

SYNCHRONOUS: Final = "FULL"
"""A commit returns when the disk has it: what a client was told holds when the power fails."""
BUSY_TIMEOUT: Final = 2.0
"""Seconds to wait for a lock of another program; everything in the journal waits meanwhile."""
_WAL_KEPT: Final = 16 * 1024 * 1024
"""Bytes that the WAL file is cut to after a large transaction; SQLite would keep its size."""
LARGEST_REWRITTEN: Final = 32 * 1024 * 1024
"""Bytes of a file that is written anew at a start, so that it can give pages back: a second where
the disk is quick, ten where it is a slow card."""
_INCREMENTAL: Final = 2
"""What `PRAGMA auto_vacuum` answers for a file that gives pages back when it is asked to."""

_VERSION_1: Final = (
    """
    CREATE TABLE executions (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        crew TEXT NOT NULL,
        owner TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'SUCCESS', 'FAILED')),
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        started_at INTEGER,
        finished_at INTEGER,
        current_task TEXT,
        total_tasks INTEGER,
        completed_tasks INTEGER NOT NULL DEFAULT 0,
        tasks_size INTEGER NOT NULL DEFAULT 0,
        last_event INTEGER NOT NULL DEFAULT 0,
        deliveries INTEGER NOT NULL DEFAULT 0,
        error TEXT,
        token_usage TEXT,
        result TEXT,
        result_json TEXT,
        last_step TEXT,
        CHECK ((finished_at IS NOT NULL) = (state IN ('SUCCESS', 'FAILED')))
    ) STRICT
    """,
    # For lists: an index ends with the row's own number, so each is in the order of creation.
    "CREATE INDEX executions_crew ON executions (crew)",
    "CREATE INDEX executions_owner ON executions (crew, owner)",
    "CREATE INDEX executions_state ON executions (crew, state)",
    "CREATE INDEX executions_owner_state ON executions (crew, owner, state)",
    "CREATE INDEX executions_finished ON executions (crew, finished_at)",
    "CREATE INDEX executions_unfinished ON executions (sequence) WHERE finished_at IS NULL",
    """
    CREATE TABLE kickoffs (
        execution INTEGER PRIMARY KEY REFERENCES executions ON DELETE CASCADE,
        inputs TEXT NOT NULL,
        meta TEXT
    ) STRICT
    """,
    """
    CREATE TABLE events (
        execution INTEGER NOT NULL,
        number INTEGER NOT NULL,
        timestamp INTEGER NOT NULL,
        type TEXT NOT NULL,
        data TEXT,
        UNIQUE (execution, number)
    ) STRICT
    """,
    """
    CREATE TABLE tasks (
        execution INTEGER NOT NULL,
        number INTEGER NOT NULL,
        record TEXT NOT NULL,
        UNIQUE (execution, number)
    ) STRICT
    """,
    """
    CREATE TABLE webhooks (
        number INTEGER PRIMARY KEY,
        execution INTEGER NOT NULL REFERENCES executions ON DELETE CASCADE,
        in_force INTEGER NOT NULL,
        kind TEXT NOT NULL,
        url TEXT NOT NULL,
        events TEXT NOT NULL,
        credential BLOB
    ) STRICT
    """,
    "CREATE INDEX webhooks_execution ON webhooks (execution)",
    "CREATE INDEX webhooks_credential ON webhooks (number) WHERE credential IS NOT NULL",
    """
    CREATE TABLE deliveries (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        execution INTEGER NOT NULL REFERENCES executions,
        webhook INTEGER NOT NULL REFERENCES webhooks,
        next_at INTEGER NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        last_error TEXT,
        body BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX deliveries_next_at ON deliveries (next_at)",
    "CREATE INDEX deliveries_execution ON deliveries (execution)",
    "CREATE INDEX deliveries_webhook ON deliveries (webhook)",
    """
    CREATE TABLE idempotency (
        crew TEXT NOT NULL,
        owner TEXT NOT NULL,
        key TEXT NOT NULL,
        digest BLOB NOT NULL,
        execution TEXT NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (crew, owner, key)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX idempotency_expires_at ON idempotency (expires_at)",
    "CREATE INDEX idempotency_execution ON idempotency (execution)",
    "CREATE TABLE forgotten (execution INTEGER PRIMARY KEY) STRICT",
)
MIGRATIONS: Final = (_VERSION_1,)
"""The n-th leads from version n to n + 1. One that was released never changes."""

# Scheme, host and port of an http:// or https:// address.
_ORIGIN: Final = "substr(url, 1, 7 + instr(replace(substr(url, 9), '?', '/') || '/', '/'))"
_FIRST_DELIVERIES: Final = (
    # Of each target that something waits for. Not in its own row, which may be large. The index
    # `deliveries_next_at` stays, since an older daemon finds by it what is due.
    """
    CREATE TABLE first_deliveries (
        webhook INTEGER PRIMARY KEY,
        delivery INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        origin TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX first_deliveries_due ON first_deliveries (due_at, delivery, origin)",
    f"""
    INSERT INTO first_deliveries
    SELECT webhook, deliveries.number, next_at, {_ORIGIN}
    FROM deliveries JOIN webhooks ON webhooks.number = webhook
    WHERE deliveries.number IN (SELECT min(number) FROM deliveries GROUP BY webhook)
    """,  # noqa: S608 - of this file's own words
    f"""
    CREATE TRIGGER deliveries_queued AFTER INSERT ON deliveries BEGIN
        INSERT OR IGNORE INTO first_deliveries
        SELECT number, new.number, new.next_at, {_ORIGIN}
        FROM webhooks WHERE number = new.webhook;
    END
    """,  # noqa: S608 - of this file's own words
    """
    CREATE TRIGGER deliveries_put_off AFTER UPDATE OF next_at ON deliveries BEGIN
        UPDATE first_deliveries SET due_at = new.next_at
        WHERE webhook = new.webhook AND delivery = new.number;
    END
    """,
    f"""
    CREATE TRIGGER deliveries_done AFTER DELETE ON deliveries BEGIN
        DELETE FROM first_deliveries WHERE webhook = old.webhook AND delivery = old.number;
        INSERT OR IGNORE INTO first_deliveries
        SELECT webhook, deliveries.number, next_at, {_ORIGIN}
        FROM deliveries JOIN webhooks ON webhooks.number = webhook
        WHERE webhook = old.webhook ORDER BY deliveries.number LIMIT 1;
    END
    """,  # noqa: S608 - of this file's own words
)
_FAILED_DELIVERIES: Final = (
    # Since when those are due that were put off; of all others their own row tells. One that failed
    # before there was this table comes into it when it fails again.
    """
    CREATE TABLE failed_deliveries (
        delivery INTEGER PRIMARY KEY REFERENCES deliveries ON DELETE CASCADE,
        webhook INTEGER NOT NULL,
        origin TEXT NOT NULL,
        due_since INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX failed_deliveries_due ON failed_deliveries (origin, due_since)",
    """
    CREATE TRIGGER deliveries_failed AFTER UPDATE OF next_at ON deliveries BEGIN
        INSERT OR IGNORE INTO failed_deliveries
        SELECT delivery, webhook, origin, old.next_at
        FROM first_deliveries WHERE webhook = new.webhook AND delivery = new.number;
    END
    """,
)
_OWED_BYTES: Final = (
    # Of the bodies that wait, by execution; those without any have no row.
    """
    CREATE TABLE owed_bytes (
        execution INTEGER PRIMARY KEY,
        bytes INTEGER NOT NULL
    ) STRICT
    """,
    """
    INSERT INTO owed_bytes
    SELECT execution, sum(length(body)) FROM deliveries GROUP BY execution
    """,
    """
    CREATE TRIGGER deliveries_owed AFTER INSERT ON deliveries BEGIN
        INSERT INTO owed_bytes VALUES (new.execution, length(new.body))
        ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes;
    END
    """,
    """
    CREATE TRIGGER deliveries_owed_no_more AFTER DELETE ON deliveries BEGIN
        UPDATE owed_bytes SET bytes = bytes - length(old.body) WHERE execution = old.execution;
        DELETE FROM owed_bytes WHERE execution = old.execution AND bytes = 0;
    END
    """,
)
ADDITIONS: Final = {
    "first_deliveries": _FIRST_DELIVERIES,
    "failed_deliveries": _FAILED_DELIVERIES,
    "owed_bytes": _OWED_BYTES,
}
"""By the name of a table or an index that each makes, which is how a file is known to have it. They
come behind all migrations. One that was released never changes."""


def open_database(path: Path) -> sqlite3.Connection:
    """The file with all tables, made when it is missing (mode 0600); its folder exists.

    The connection may be used from any thread, by one at a time; transactions are begun by hand.
    Raises `UnusableJournal`, of which `NoRoomToOpen` is one.
    """
    try:
        if path.exists():
            _refuse_newer(path)
        else:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        try:
            _configure(connection)
            _migrate(connection)
            _let_it_shrink(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        told = explained_at_start(error, path)
        if told is None:
            raise
        raise told from error
    except OSError as error:
        if disk_is_full(error):
            raise no_room_to_open(path) from error
        raise UnusableJournal(
            f"{path} cannot be used ({error.strerror}); let the daemon's user write to its folder"
        ) from error
    return connection


def _refuse_newer(path: Path) -> None:
    read_only = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, timeout=BUSY_TIMEOUT, uri=True)) as connection:
        version = _version(connection)
    if version > len(MIGRATIONS):
        raise UnusableJournal(
            f"{path} was written by a newer smartlinkd (version {version} of the file, this one "
            f"knows {len(MIGRATIONS)}): install that one again, or put back the backup from "
            "before it"
        )


def _configure(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    # Before the first page is written: later it only says what a VACUUM is to make of the file.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    # Some builds overwrite what is deleted, which makes forgetting as dear as writing.
    connection.execute("PRAGMA secure_delete = FAST")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT}")


def _migrate(connection: sqlite3.Connection) -> None:
    # Also when there is none to make: a file that cannot be written to is better known at once.
    connection.execute("BEGIN IMMEDIATE")
    for version, migration in enumerate(MIGRATIONS[_version(connection) :], _version(connection)):
        for statement in migration:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version + 1}")
    there = {row["name"] for row in connection.execute("SELECT name FROM sqlite_schema")}
    for name, addition in ADDITIONS.items():
        if name not in there:
            for statement in addition:
                connection.execute(statement)
    connection.execute("COMMIT")


def _let_it_shrink(connection: sqlite3.Connection, path: Path) -> None:
    """Write a file of before anew, if it is small: whatever hinders that, it can be used as it is.

    In memory at first, not in a temporary file: nothing of a journal lies anywhere else.
    """
    (kind,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    size = path.stat().st_size
    # Twice: in the log, and from there in the file.
    if kind == _INCREMENTAL or size > LARGEST_REWRITTEN or not has_room(path.parent, 2 * size):
        return
    connection.execute("PRAGMA temp_store = MEMORY")
    try:
        connection.execute("VACUUM")
    except sqlite3.Error as error:
        logger.warning("%s keeps its size for now, however much is forgotten: %s", path, error)
    finally:
        connection.execute("PRAGMA temp_store = DEFAULT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
