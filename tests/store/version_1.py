"""SQL statements that daemons of version 1 added to the store's file, in their order."""

from __future__ import annotations

from typing import Final

# Scheme, host and port of an http:// or https:// address.
_ORIGIN: Final = "substr(url, 1, 7 + instr(replace(substr(url, 9), '?', '/') || '/', '/'))"
FIRST_DELIVERIES: Final = (
    # One row for each target with a waiting delivery. It is not the target's own row, which may be
    # large. An older daemon finds due deliveries by the index `deliveries_next_at`, so that stays.
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
    """,
    f"""
    CREATE TRIGGER deliveries_queued AFTER INSERT ON deliveries BEGIN
        INSERT OR IGNORE INTO first_deliveries
        SELECT number, new.number, new.next_at, {_ORIGIN}
        FROM webhooks WHERE number = new.webhook;
    END
    """,
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
    """,
)
FAILED_DELIVERIES: Final = (
    # The first due time of rescheduled deliveries; others have it in their own row. A delivery that
    # failed before this table existed is added when it fails again.
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
OWED_BYTES: Final = (
    # The bytes of waiting bodies by execution; an execution without any has no row.
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
