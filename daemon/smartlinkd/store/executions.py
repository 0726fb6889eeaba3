"""Executions, their events and their completed tasks: reading and writing the rows.

All functions run inside a transaction of the caller, or read only.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final, cast

from pydantic import JsonValue

from smartlinkd.errors import Invalid
from smartlinkd.store import outbox
from smartlinkd.store.codec import (
    MAX_ERROR,
    MAX_META,
    MAX_NAME,
    MAX_TEXT,
    check_size,
    decode,
    digest,
    encode,
    micros,
    moment,
    optional_moment,
    text,
)
from smartlinkd.store.errors import AlreadyFinished, KeyReused, TooLarge
from smartlinkd.store.model import (
    Change,
    Created,
    Entry,
    Event,
    Execution,
    IdempotencyKey,
    NewEvent,
    NewExecution,
    Page,
    State,
    Status,
    Summary,
    TaskRecord,
)
from smartlinkd.store.sealing import NotSealed, Seal

KEY_LIFETIME: Final = timedelta(hours=24)
"""How long an idempotency key stands for what it created."""
MAX_PAGE: Final = 100
"""Executions in one answer."""
MAX_EVENTS_AT_ONCE: Final = 500
"""Events in one answer."""
MAX_EVENT_BYTES_AT_ONCE: Final = 60 * 1024
"""Bytes of events in one answer. A larger event is read in parts of this size.

Each client that follows an execution holds one answer while it does not read. With what is put
around it, an answer is one write to a connection (`SEND_SLICE`).
"""
MAX_EVENTS: Final = 100_000
"""Events of one execution. What ends it is still recorded beyond."""
MAX_DELIVERIES: Final = 100_000
"""The same for webhook calls queued over its whole life."""
MAX_TASKS: Final = 10_000
"""Completed tasks of one execution."""
MAX_TASKS_SIZE: Final = 16 * 1024 * 1024
"""Characters of all their records together: whoever asks for the execution gets all of them."""

_TEXTS: Final = {"result": MAX_TEXT, "error": MAX_ERROR, "current_task": MAX_NAME}
_JSON: Final = ("result_json", "last_step")
_MOMENTS: Final = ("started_at", "finished_at")

# The columns of a `Summary`.
_SUMMARY: Final = (
    "sequence, id, crew, owner, status, error, current_task, completed_tasks, total_tasks, "
    "created_at, started_at, finished_at"
)

_Columns = dict[str, str | int | None]


def create(
    connection: sqlite3.Connection, seal: Seal, new: NewExecution, key: IdempotencyKey | None
) -> Created:
    """Insert an execution, unless its key stands for one."""
    if key is not None:
        earlier = created_by(connection, new.crew, new.owner, key, new.created_at)
        if earlier is not None:
            return Created(earlier, is_new=False)
    sequence = connection.execute(
        "INSERT INTO executions (id, crew, owner, state, status, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (new.id, new.crew, new.owner, State.PENDING, Status.PENDING, micros(new.created_at)),
    ).lastrowid
    assert sequence is not None  # noqa: S101 - it was just inserted; for the type checker
    connection.execute(
        "INSERT INTO kickoffs (execution, inputs, meta) VALUES (?, ?, ?)",
        (sequence, encode("inputs", new.inputs), encode("meta", new.meta, limit=MAX_META)),
    )
    outbox.set_targets(connection, seal, sequence, new.id, new.webhooks)
    if key is not None:
        expires_at = micros(new.created_at + KEY_LIFETIME)
        # In place of an expired one; a live one is found above, by the one writer there is.
        connection.execute(
            "DELETE FROM idempotency WHERE crew = ? AND owner = ? AND key = ?",
            (new.crew, new.owner, key.key),
        )
        connection.execute(
            "INSERT INTO idempotency (crew, owner, key, digest, execution, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (new.crew, new.owner, key.key, digest(key.body), new.id, expires_at),
        )
    return Created(new.id, is_new=True)


def created_by(
    connection: sqlite3.Connection, crew: str, owner: str, key: IdempotencyKey, now: datetime
) -> str | None:
    """The id of what a key stands for at `now`, None when it is unused. Raises `KeyReused`."""
    row = connection.execute(
        "SELECT digest, execution FROM idempotency "
        "WHERE crew = ? AND owner = ? AND key = ? AND expires_at > ?",
        (crew, owner, text("Idempotency-Key", key.key, MAX_NAME), micros(now)),
    ).fetchone()
    if row is None:
        return None
    if row["digest"] != digest(key.body):
        raise KeyReused(
            "Idempotency-Key: was used with another body in the last 24 hours; send a fresh key, "
            "or the same body"
        )
    return str(row["execution"])


def record(connection: sqlite3.Connection, seal: Seal, execution_id: str, entry: Entry) -> None:
    """Change an execution, number its new events, queue its webhook calls."""
    change = entry.change
    row = connection.execute(
        "SELECT sequence, state, last_event, deliveries, completed_tasks, tasks_size "
        "FROM executions WHERE id = ?",
        (execution_id,),
    ).fetchone()
    if row is None:
        raise LookupError(f"there is no execution {execution_id} to record anything of")
    if State(row["state"]).ended:
        raise AlreadyFinished(f"execution {execution_id} has ended; kick off a new one")
    sequence: int = row["sequence"]
    event_count = row["last_event"] + len(entry.events)
    delivery_count = row["deliveries"] + len(entry.deliveries)
    if not entry.ends or len(entry.events) > 1:  # for its end alone there is always room
        _check_count("events", event_count, MAX_EVENTS)
        _check_count("webhook calls", delivery_count, MAX_DELIVERIES)
        outbox.check_owed(connection, sequence, entry.deliveries)
    columns = _changed(change) | _record_tasks(connection, row, change)
    columns |= {"last_event": event_count, "deliveries": delivery_count}
    # The names are those of this file, never an asker's.
    assignments = ", ".join(f"{column} = :{column}" for column in columns)
    connection.execute(
        f"UPDATE executions SET {assignments} WHERE sequence = :sequence",  # noqa: S608
        {**columns, "sequence": sequence},
    )
    _add_events(connection, sequence, row["last_event"], entry.events)
    if "webhooks" in change:
        outbox.set_targets(connection, seal, sequence, execution_id, change["webhooks"])
    outbox.queue(connection, seal, sequence, execution_id, entry.deliveries)
    if entry.ends or "webhooks" in change:
        outbox.drop_unneeded_targets(connection, sequence)


def read(
    connection: sqlite3.Connection,
    seal: Seal,
    execution_id: str,
    *,
    crew: str | None = None,
    owner: str | None = None,
) -> tuple[Execution, int] | None:
    """The execution, whole, and how many characters it has; None also for another crew's or
    owner's, where they are given.

    Whose it is, is looked at before anything of it is read: to one who may not see it, it takes no
    longer than one that there is not.
    """
    found = connection.execute(
        "SELECT sequence FROM executions WHERE id = :id "
        "AND (:crew IS NULL OR crew = :crew) AND (:owner IS NULL OR owner = :owner)",
        {"id": execution_id, "crew": crew, "owner": owner},
    ).fetchone()
    if found is None:
        return None
    row = connection.execute(
        "SELECT * FROM executions JOIN kickoffs ON execution = sequence WHERE sequence = ?",
        (found["sequence"],),
    ).fetchone()
    size = row["tasks_size"] + sum(len(each) for each in row if isinstance(each, str))
    tasks = connection.execute(
        "SELECT record FROM tasks WHERE execution = ? ORDER BY number", (row["sequence"],)
    )
    execution = Execution(
        **_summary_fields(row),
        inputs=cast("dict[str, JsonValue]", decode(row["inputs"])),
        meta=decode(row["meta"]),
        webhooks=outbox.targets_in_force(connection, seal, row["sequence"], execution_id),
        result=row["result"],
        result_json=decode(row["result_json"]),
        tasks=tuple(_task(task["record"]) for task in tasks),
        last_step=decode(row["last_step"]),
    )
    for target in execution.webhooks:
        size += len(target.url) + sum(map(len, target.events))
    return execution, size


def summary(
    connection: sqlite3.Connection, execution_id: str, *, crew: str | None, owner: str | None
) -> Summary | None:
    """The execution without what may be large; None as `read` has it."""
    row = connection.execute(
        f"SELECT {_SUMMARY} FROM executions WHERE id = :id "  # noqa: S608 - this file's own words
        "AND (:crew IS NULL OR crew = :crew) AND (:owner IS NULL OR owner = :owner)",
        {"id": execution_id, "crew": crew, "owner": owner},
    ).fetchone()
    return None if row is None else Summary(**_summary_fields(row))


def unfinished(connection: sqlite3.Connection) -> list[Summary]:
    """Those that have not ended, in the order of creation."""
    rows = connection.execute(
        f"SELECT {_SUMMARY} FROM executions "  # noqa: S608 - this file's own words
        "INDEXED BY executions_unfinished WHERE finished_at IS NULL ORDER BY sequence"
    )
    return [Summary(**_summary_fields(row)) for row in rows]


def page(
    connection: sqlite3.Connection,
    seal: Seal,
    crew: str,
    *,
    owner: str | None,
    state: State | None,
    limit: int,
    cursor: str | None,
) -> Page:
    """Some of a crew's executions, newest first. Raises `Invalid` for a cursor not from here."""
    limit = min(limit, MAX_PAGE)
    context = f"{crew}\n{owner!r}"
    wanted: dict[str, str | int] = {"crew": crew}
    if owner is not None:
        wanted["owner"] = owner
    if state is not None:
        wanted["state"] = state
    conditions = [f"{column} = :{column}" for column in wanted]
    if cursor is not None:
        wanted["before"] = _opened(seal, cursor, context)
        conditions.append("sequence < :before")
    # The names are those of this file, never an asker's.
    statement = (
        f"SELECT {_SUMMARY} FROM executions "  # noqa: S608
        f"WHERE {' AND '.join(conditions)} ORDER BY sequence DESC LIMIT :limit"
    )
    rows = connection.execute(statement, {**wanted, "limit": limit + 1}).fetchall()
    found = tuple(Summary(**_summary_fields(row)) for row in rows[:limit])
    more = len(rows) > limit
    return Page(found, _sealed(seal, found[-1].sequence, context) if more else None)


def events(
    connection: sqlite3.Connection, execution_id: str, *, after: int, limit: int, offset: int = 0
) -> list[Event]:
    """Return events numbered above `after`: at most `limit`, and fewer when they are large.

    A large event comes alone, and only its first part. With an `offset` the answer is one more
    part of the next event's data, from that byte on.
    """
    rows = connection.execute(
        "SELECT rowid, number, timestamp, type, "
        "iif(:offset, NULL, substr(CAST(data AS BLOB), 1, :most)) AS beginning FROM events "
        "WHERE execution = (SELECT sequence FROM executions WHERE id = :id) AND number > :after "
        "ORDER BY number LIMIT :limit",
        {
            "id": execution_id,
            "after": after,
            "offset": offset,
            "most": MAX_EVENT_BYTES_AT_ONCE,
            "limit": 1 if offset else min(limit, MAX_EVENTS_AT_ONCE),
        },
    )
    found: list[Event] = []
    together = 0
    for row in rows:
        data = row["beginning"] or b""
        size = len(data)
        together += len(row["type"]) + size
        if found and together > MAX_EVENT_BYTES_AT_ONCE:
            break
        if offset or size == MAX_EVENT_BYTES_AT_ONCE:
            data, size = _part(connection, row["rowid"], offset)
        at = moment(row["timestamp"])
        found.append(Event(row["number"], at, row["type"], data, size, offset))
    return found


def _part(connection: sqlite3.Connection, rowid: int, offset: int) -> tuple[bytes, int]:
    """Return a part of an event's data, and the size of all of it. The rest is not read."""
    with connection.blobopen("events", "data", rowid, readonly=True) as data:
        data.seek(offset)
        part = data.read(MAX_EVENT_BYTES_AT_ONCE)
        size = len(data)
    # The last character may be cut in its midst: it comes with the next part.
    _, whole = codecs.utf_8_decode(part, "strict", False)
    return part[:whole], size


def count_bare_events(connection: sqlite3.Connection, execution_id: str, kind: str) -> int:
    """How many of that type have no data."""
    (count,) = connection.execute(
        "SELECT count(*) FROM events "
        "WHERE execution = (SELECT sequence FROM executions WHERE id = ?) "
        "AND type = ? AND data IS NULL",
        (execution_id, kind),
    ).fetchone()
    return int(count)


def _changed(change: Change) -> _Columns:
    """The plain columns that a change gives a new value."""
    columns: _Columns = {}
    if "status" in change:
        columns |= {"status": change["status"], "state": change["status"].state}
    if "total_tasks" in change:
        columns["total_tasks"] = change["total_tasks"]
    given = cast("Mapping[str, Any]", change)
    for name, limit in _TEXTS.items():
        if name in given:
            columns[name] = None if given[name] is None else text(name, given[name], limit)
    for name in _JSON:
        if name in given:
            columns[name] = encode(name, given[name])
    for name in _MOMENTS:
        if name in given:
            columns[name] = None if given[name] is None else micros(given[name])
    return columns


def _record_tasks(connection: sqlite3.Connection, row: sqlite3.Row, change: Change) -> _Columns:
    sequence, count, size = row["sequence"], row["completed_tasks"], row["tasks_size"]
    if change.get("drop_tasks"):
        connection.execute("DELETE FROM tasks WHERE execution = ?", (sequence,))
        count = size = 0
    for task in change.get("new_tasks", ()):
        content = encode("task", asdict(task)) or ""
        count += 1
        size += len(content)
        _check_count("completed tasks", count, MAX_TASKS)
        check_size("tasks", size, MAX_TASKS_SIZE)
        connection.execute("INSERT INTO tasks VALUES (?, ?, ?)", (sequence, count, content))
    return {"completed_tasks": count, "tasks_size": size}


def _add_events(
    connection: sqlite3.Connection, sequence: int, last: int, new: Sequence[NewEvent]
) -> None:
    connection.executemany(
        "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
        [
            (
                sequence,
                number,
                micros(event.timestamp),
                text("event type", event.type, MAX_NAME),
                encode("event data", event.data),
            )
            for number, event in enumerate(new, last + 1)
        ],
    )


def _check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise TooLarge(f"{what}: more than {limit} in one execution; end it")


def _summary_fields(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "crew": row["crew"],
        "owner": row["owner"],
        "status": Status(row["status"]),
        "error": row["error"],
        "current_task": row["current_task"],
        "completed_tasks": row["completed_tasks"],
        "total_tasks": row["total_tasks"],
        "created_at": moment(row["created_at"]),
        "started_at": optional_moment(row["started_at"]),
        "finished_at": optional_moment(row["finished_at"]),
        "sequence": row["sequence"],
    }


def _task(content: str) -> TaskRecord:
    return TaskRecord(**cast("dict[str, Any]", decode(content)))


def _sealed(seal: Seal, sequence: int, context: str) -> str:
    # Of one length, which would else say how many digits the number has.
    sealed = seal.seal(sequence.to_bytes(8), context)
    return base64.urlsafe_b64encode(sealed).decode()


def _opened(seal: Seal, cursor: str, context: str) -> int:
    try:
        sealed = base64.urlsafe_b64decode(cursor.encode("ascii"))
        return int.from_bytes(seal.open(sealed, context))
    except (NotSealed, binascii.Error, UnicodeEncodeError):
        raise Invalid(
            "cursor: not one that this list gave; leave it out to begin with the newest"
        ) from None
