"""Webhook targets and the deliveries that wait for them.

A delivery is a row until it is done or given up. It names a row of `webhooks`, not an address, so
that a credential is kept once however many deliveries wait, and so that a target which is replaced
stays for those queued before. A credential goes as soon as nobody can need it any more: when the
execution has ended, or its target was replaced, and no delivery waits.

All functions run inside a transaction of the caller, or read only.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Final, cast

from pydantic import SecretStr

from smartlinkd.store.codec import (
    MAX_URL,
    check_size,
    decode,
    encode,
    micros,
    moment,
    text,
)
from smartlinkd.store.errors import TooLarge
from smartlinkd.store.model import Delivery, NewDelivery, WebhookTarget
from smartlinkd.store.sealing import NotSealed, Seal

MAX_BODY: Final = 32 * 1024 * 1024
"""Bytes of one call: a result, the same as an object, and the quotes of JSON around them."""
MAX_OWED: Final = 256 * 1024 * 1024
"""Bytes of what one execution is owed at the same time: few words of a worker may become many, by a
`meta` that stands in each call and by many targets. What ends it is still queued beyond."""
MAX_AUTH: Final = 16 * 1024
"""Bytes of an Authorization header; servers take less."""
MAX_WANTED_BYTES: Final = 256 * 1024
"""Bytes of the types of events that a target wants: a hundred of 200 characters of any kind."""
MAX_TARGETS: Final = 64
"""Targets of an execution that are in force or still waited for."""
MAX_AT_ONCE: Final = 100
"""Deliveries in one answer."""
MAX_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
"""Bytes of bodies in one answer; a single one may be larger."""


def set_targets(
    connection: sqlite3.Connection,
    seal: Seal,
    sequence: int,
    execution_id: str,
    targets: Iterable[WebhookTarget],
) -> None:
    """Put these in force, in place of those so far."""
    connection.execute("UPDATE webhooks SET in_force = 0 WHERE execution = ?", (sequence,))
    for target in targets:
        _add_target(connection, seal, sequence, execution_id, target, in_force=True)


def targets_in_force(
    connection: sqlite3.Connection, seal: Seal, sequence: int, execution_id: str
) -> tuple[WebhookTarget, ...]:
    """Those that were set last, in their order."""
    rows = connection.execute(
        "SELECT * FROM webhooks WHERE execution = ? AND in_force ORDER BY number", (sequence,)
    )
    return tuple(_target(row, seal, execution_id) for row in rows)


def check_owed(
    connection: sqlite3.Connection, sequence: int, more: Collection[NewDelivery]
) -> None:
    """Raises `TooLarge` when an execution would be owed too much with these."""
    if not more:
        return
    row = connection.execute(
        "SELECT bytes FROM owed_bytes WHERE execution = ?", (sequence,)
    ).fetchone()
    owed = sum(len(each.body) for each in more) + (0 if row is None else row["bytes"])
    if owed > MAX_OWED:
        raise TooLarge(
            f"webhook calls: more than {MAX_OWED} bytes owed at a time in one execution; see to "
            "the receivers that do not take them, or have a smaller meta in them"
        )


def queue(
    connection: sqlite3.Connection,
    seal: Seal,
    sequence: int,
    execution_id: str,
    deliveries: Iterable[NewDelivery],
) -> None:
    """Have these wait until they are due."""
    for delivery in deliveries:
        check_size("webhook body", len(delivery.body), MAX_BODY)
        webhook = _find_target(connection, seal, sequence, execution_id, delivery.target)
        if webhook is None:
            webhook = _add_target(
                connection, seal, sequence, execution_id, delivery.target, in_force=False
            )
        connection.execute(
            "INSERT INTO deliveries (execution, webhook, next_at, body) VALUES (?, ?, ?, ?)",
            (sequence, webhook, micros(delivery.due_at), delivery.body),
        )


def due(
    connection: sqlite3.Connection,
    seal: Seal,
    now: datetime,
    limit: int,
    *,
    except_ids: Collection[int],
    except_origins: Collection[str],
) -> list[Delivery]:
    """The first of each target, when due at `now`, longest due first.

    A target is one address of an execution. It has a row for each kind of calls, and another when
    it has another credential or other events from some time on: what was queued for one of them
    comes after what was queued before for another. But a human who is asked has only so much time:
    that waits for no other kind, and no other for it.

    At most `limit`, and fewer when they are large.
    """
    # What the query is made of is marks for values alone. One for a host that is passed over costs
    # an entry of the index, and no row.
    rows = connection.execute(
        f"""
        SELECT deliveries.number AS delivery, id, crew, attempts, next_at, body,
               kind, url, webhooks.events, credential,
               coalesce((SELECT due_since FROM failed_deliveries
                         WHERE delivery = first.delivery), next_at) AS due_since
        FROM first_deliveries AS first INDEXED BY first_deliveries_due
        CROSS JOIN webhooks ON webhooks.number = first.webhook
        CROSS JOIN deliveries ON deliveries.number = first.delivery
        CROSS JOIN executions ON executions.sequence = deliveries.execution
        WHERE due_at <= ? AND origin NOT IN ({_marks(except_origins)})
        AND first.delivery NOT IN ({_marks(except_ids)})
        AND NOT EXISTS (
            SELECT 1 FROM webhooks AS other
            JOIN first_deliveries AS before ON before.webhook = other.number
            WHERE other.execution = webhooks.execution AND other.url = webhooks.url
            AND (other.kind = 'human_input') = (webhooks.kind = 'human_input')
            AND before.delivery < first.delivery
        )
        ORDER BY due_at, first.delivery
        LIMIT ?
        """,  # noqa: S608 - see above
        (micros(now), *except_origins, *except_ids, min(limit, MAX_AT_ONCE)),
    )
    found: list[Delivery] = []
    size = 0
    for row in rows:
        size += len(row["body"])
        if found and size > MAX_BYTES_AT_ONCE:
            break
        found.append(_delivery(row, seal))
    return found


def done(connection: sqlite3.Connection, delivery: int) -> None:
    """It was made, or is given up. Nothing when it is gone already."""
    row = connection.execute(
        "DELETE FROM deliveries WHERE number = ? RETURNING execution", (delivery,)
    ).fetchone()
    if row is not None:
        drop_unneeded_targets(connection, row["execution"])


def give_up(
    connection: sqlite3.Connection, origin: str, before: datetime, except_ids: Collection[int]
) -> Counter[tuple[str, str]]:
    """Forget up to `MAX_AT_ONCE` of what an origin has been owed since before that, be it put off
    since; how many those were, by the execution's id and crew."""
    at = micros(before)
    # A call that was put off is the first of its target. It may be found twice.
    firsts = connection.execute(
        f"""
        SELECT webhook, sequence, id, crew FROM (
            SELECT webhook, delivery FROM first_deliveries INDEXED BY first_deliveries_due
            WHERE due_at <= ? AND origin = ?
            UNION ALL
            SELECT webhook, delivery FROM failed_deliveries INDEXED BY failed_deliveries_due
            WHERE due_since <= ? AND origin = ?
        ) AS first
        CROSS JOIN webhooks ON webhooks.number = first.webhook
        CROSS JOIN executions ON executions.sequence = webhooks.execution
        WHERE delivery NOT IN ({_marks(except_ids)}) LIMIT ?
        """,  # noqa: S608 - what it is made of is marks for values alone
        (at, origin, at, origin, *except_ids, MAX_AT_ONCE),
    ).fetchall()
    given_up = Counter[tuple[str, str]]()
    for first in firsts:
        given_up[first["id"], first["crew"]] += connection.execute(
            """
            DELETE FROM deliveries WHERE number IN (
                SELECT number FROM deliveries INDEXED BY deliveries_webhook
                LEFT JOIN failed_deliveries ON delivery = number
                WHERE deliveries.webhook = ? AND (next_at <= ? OR due_since <= ?)
                ORDER BY number LIMIT ?
            )
            """,
            (first["webhook"], at, at, MAX_AT_ONCE - given_up.total()),
        ).rowcount
        drop_unneeded_targets(connection, first["sequence"])
        if given_up.total() >= MAX_AT_ONCE:
            break
    return given_up


def put_off(connection: sqlite3.Connection, delivery: int, next_at: datetime) -> None:
    """It failed and is tried again. Nothing when it is gone already."""
    connection.execute(
        "UPDATE deliveries SET attempts = attempts + 1, next_at = ? WHERE number = ?",
        (micros(next_at), delivery),
    )


def drop_unneeded_targets(connection: sqlite3.Connection, sequence: int) -> None:
    """Delete replaced targets that nothing waits for, and the credentials of an ended execution."""
    connection.execute(
        """
        DELETE FROM webhooks WHERE execution = ? AND NOT in_force
        AND NOT EXISTS (SELECT 1 FROM deliveries WHERE webhook = webhooks.number)
        """,
        (sequence,),
    )
    connection.execute(
        """
        UPDATE webhooks SET credential = NULL WHERE execution = ? AND +credential IS NOT NULL
        AND EXISTS (SELECT 1 FROM executions
                    WHERE sequence = webhooks.execution AND finished_at IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM deliveries WHERE webhook = webhooks.number)
        """,
        (sequence,),
    )


def key_fits(connection: sqlite3.Connection, seal: Seal) -> bool:
    """Whether the credentials are under this key, if there are any. They all are when one is: then
    one that does not open is damaged."""
    rows = connection.execute(
        """
        SELECT id, kind, url, webhooks.events, credential
        FROM webhooks JOIN executions ON sequence = execution
        WHERE credential IS NOT NULL
        """
    )
    there = False
    for row in rows:
        there = True
        with suppress(NotSealed):
            _target(row, seal, row["id"])
            return True
    return not there


def drop_credentials(connection: sqlite3.Connection) -> int:
    """Forget all of them; how many there were."""
    forget = "UPDATE webhooks SET credential = NULL WHERE credential IS NOT NULL"
    return connection.execute(forget).rowcount


def _find_target(
    connection: sqlite3.Connection,
    seal: Seal,
    sequence: int,
    execution_id: str,
    target: WebhookTarget,
) -> int | None:
    rows = connection.execute(
        "SELECT * FROM webhooks WHERE execution = ? AND kind = ? AND url = ?",
        (sequence, target.kind, target.url),
    )
    same = (row["number"] for row in rows if _target(row, seal, execution_id) == target)
    return next(same, None)


def _add_target(
    connection: sqlite3.Connection,
    seal: Seal,
    sequence: int,
    execution_id: str,
    target: WebhookTarget,
    *,
    in_force: bool,
) -> int:
    (count,) = connection.execute(
        "SELECT count(*) FROM webhooks WHERE execution = ?", (sequence,)
    ).fetchone()
    if count >= MAX_TARGETS:
        raise TooLarge(f"webhooks: more than {MAX_TARGETS} targets for one execution; use fewer")
    credential = None
    if target.auth is not None:
        header = text("webhook authentication", target.auth.get_secret_value(), MAX_AUTH)
        context = _context(execution_id, target.kind, target.url)
        credential = seal.seal(header.encode(), context)
    number = connection.execute(
        "INSERT INTO webhooks (execution, in_force, kind, url, events, credential) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            sequence,
            in_force,
            target.kind,
            text("webhook url", target.url, MAX_URL),
            encode("webhook events", list(target.events), limit=MAX_WANTED_BYTES),
            credential,
        ),
    ).lastrowid
    assert number is not None  # noqa: S101 - it was just inserted; for the type checker
    return number


def _delivery(row: sqlite3.Row, seal: Seal) -> Delivery:
    return Delivery(
        id=row["delivery"],
        execution_id=row["id"],
        crew=row["crew"],
        target=_target(row, seal, row["id"]),
        body=row["body"],
        attempts=row["attempts"],
        due_since=moment(row["due_since"]),
        next_at=moment(row["next_at"]),
    )


def _target(row: sqlite3.Row, seal: Seal, execution_id: str) -> WebhookTarget:
    auth = None
    if row["credential"] is not None:
        context = _context(execution_id, row["kind"], row["url"])
        auth = SecretStr(seal.open(row["credential"], context).decode())
    events = cast("list[str]", decode(row["events"]))
    return WebhookTarget(kind=row["kind"], url=row["url"], events=tuple(events), auth=auth)


def _marks(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _context(execution_id: str, kind: str, url: str) -> str:
    return f"{execution_id}\n{kind}\n{url}"
