"""The tables of the store.

An execution may have very many events and tasks, so these have no foreign key. Pruning deletes the
execution's row first and notes its number in `pruned`. Then it deletes the rest in batches. See
docs/decisions/053-tables-of-the-store.md.
"""

from __future__ import annotations

from typing import Final

from smartlinkd.store.sqlite import Schema

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
"""`executions.token_usage` and `deliveries.last_error` are written no more: nobody reads them."""

# The last daemons of version 1 added these, one after the other.
_TRIGGERS: Final = (
    "deliveries_queued",
    "deliveries_put_off",
    "deliveries_done",
    "deliveries_failed",
    "deliveries_owed",
    "deliveries_owed_no_more",
)
_VERSION_2: Final = (
    *(f"DROP TRIGGER IF EXISTS {name}" for name in _TRIGGERS),
    # When a delivery was due first, if it was rescheduled since; null if not.
    "ALTER TABLE deliveries ADD COLUMN due_since INTEGER",
    "DROP TABLE IF EXISTS failed_deliveries",
    "DROP TABLE IF EXISTS first_deliveries",
    "DROP TABLE IF EXISTS owed_bytes",
    "DROP INDEX deliveries_next_at",
    # Scheme, host and port of an http:// or https:// address.
    """
    ALTER TABLE webhooks ADD COLUMN url_origin TEXT GENERATED ALWAYS AS (
        substr(url, 1, 7 + instr(replace(substr(url, 9), '?', '/') || '/', '/'))
    ) VIRTUAL
    """,
    # The first delivery that waits for this target, and when it is due; null if none waits.
    "ALTER TABLE webhooks ADD COLUMN first_delivery INTEGER",
    "ALTER TABLE webhooks ADD COLUMN first_due_at INTEGER",
    "ALTER TABLE webhooks ADD COLUMN pending_bytes INTEGER NOT NULL DEFAULT 0",
    """
    UPDATE webhooks SET
        (first_delivery, first_due_at) = (
            SELECT number, next_at FROM deliveries
            WHERE webhook = webhooks.number ORDER BY number LIMIT 1
        ),
        pending_bytes = (SELECT sum(length(body)) FROM deliveries WHERE webhook = webhooks.number)
    WHERE number IN (SELECT webhook FROM deliveries)
    """,
    """
    CREATE INDEX webhooks_due ON webhooks (first_due_at, first_delivery, url_origin)
    WHERE first_due_at IS NOT NULL
    """,
    "ALTER TABLE forgotten RENAME TO pruned",
)

SCHEMA: Final = Schema(
    migrations=(_VERSION_1, _VERSION_2),
    synchronous="FULL",
    wal_bytes=16 * 1024 * 1024,
    keeps_copy=True,
)
