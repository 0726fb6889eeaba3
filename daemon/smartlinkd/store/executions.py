"""Executions with their events, completed tasks and idempotency keys."""

from __future__ import annotations

import base64
import codecs
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any, Final, cast

from pydantic import JsonValue

from smartlinkd.errors import Invalid, Unprocessable
from smartlinkd.store.codec import (
    MAX_META,
    decode,
    digest,
    encode,
    micros,
    moment,
    optional_moment,
    text,
)
from smartlinkd.store.errors import disk_full
from smartlinkd.store.file import StoreFile
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionEvent,
    ExecutionState,
    ExecutionUpdate,
    IdempotencyKey,
    ListPage,
    NewEvent,
    NewExecution,
    Status,
    StoreLimits,
    Summary,
    TaskRecord,
)
from smartlinkd.store.outbox import Outbox

KEY_LIFETIME: Final = timedelta(hours=24)
"""How long an idempotency key is valid."""
EVENT_PART_BYTES: Final = 60 * 1024
"""The size of the events of one answer. A larger event is read in parts of this size.

Each client that follows an execution holds one answer while it does not read. With what is put
around it, an answer is one write to a connection, or two (`SEND_SLICE`).
"""

_CURSOR_BYTES: Final = 8

_TEXTS: Final = ("result", "error", "current_task")
_JSON: Final = ("result_json", "last_step")
_MOMENTS: Final = ("started_at", "finished_at")

_SUMMARY_COLUMNS: Final = tuple(field.name for field in fields(Summary))
_SUMMARY: Final = ", ".join(_SUMMARY_COLUMNS)

_Columns = dict[str, str | int | None]


class Executions:
    """The tables `executions`, `kickoffs`, `events`, `tasks` and `idempotency`."""

    def __init__(self, file: StoreFile, outbox: Outbox, limits: StoreLimits) -> None:
        self._file = file
        self._connection = file.connection
        self._outbox = outbox
        self._limits = limits
        self.chars_read = 0
        """Characters of executions that were read since somebody set it to 0."""

    def create(
        self,
        new: NewExecution,
        idempotency: IdempotencyKey | None = None,
        update: ExecutionUpdate | None = None,
    ) -> str:
        """Insert an execution and record its `update`, unless its key stands for one already.

        Returns the id that the kickoff is answered with.

        Raises:
            Unprocessable: the key was used with another body.
            Invalid: a value cannot be stored.
        """
        with self._file.writing():
            if idempotency is not None:
                earlier = self.created_by(new.crew, new.owner, idempotency, new.created_at)
                if earlier is not None:
                    return earlier
            self._insert(new, idempotency)
            # SQLite may still have a free page in its file, but the worker would find no room on
            # the disk.
            if not self._file.has_room():
                raise disk_full()
            if update is not None:
                self.record(new.id, update)
            return new.id

    def _insert(self, new: NewExecution, key: IdempotencyKey | None) -> None:
        sequence = self._connection.execute(
            "INSERT INTO executions (id, crew, owner, state, status, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                new.id,
                new.crew,
                new.owner,
                ExecutionState.PENDING,
                Status.PENDING,
                micros(new.created_at),
            ),
        ).lastrowid
        assert sequence is not None  # noqa: S101 - it was just inserted; for the type checker
        self._connection.execute(
            "INSERT INTO kickoffs (execution, inputs, meta) VALUES (?, ?, ?)",
            (sequence, encode("inputs", new.inputs), encode("meta", new.meta, limit=MAX_META)),
        )
        self._outbox.set_targets(sequence, new.id, new.webhooks)
        if key is not None:
            self._add_key(new, key)

    def created_by(self, crew: str, owner: str, key: IdempotencyKey, now: datetime) -> str | None:
        """Return the id that a key stands for at `now`; None if unused.

        Raises `Unprocessable` for another body than then, `Invalid` for one that cannot be stored.
        """
        with self._file.reading():
            row = self._connection.execute(
                "SELECT digest, execution FROM idempotency "
                "WHERE crew = ? AND owner = ? AND key = ? AND expires_at > ?",
                (crew, owner, text("Idempotency-Key", key.key), micros(now)),
            ).fetchone()
            if row is None:
                return None
            if row["digest"] != digest(key.body):
                raise Unprocessable(
                    "Idempotency-Key: was used with another body in the last 24 hours; send a "
                    "fresh key, or the same body"
                )
            return str(row["execution"])

    def record(self, execution_id: str, update: ExecutionUpdate) -> None:
        """Change an execution, number its new events, and queue its webhook calls, all or nothing.

        Raises:
            Invalid: the execution has ended, or a value or so many webhook calls cannot be stored.
            LookupError: no execution has this id, which ends the actor: the caller has a bug.
        """
        with self._file.writing():
            change = update.change
            row = self._connection.execute(
                "SELECT sequence, state, last_event, deliveries, completed_tasks, tasks_size "
                "FROM executions WHERE id = ?",
                (execution_id,),
            ).fetchone()
            if row is None:
                raise LookupError(f"there is no execution {execution_id} to record anything of")
            if ExecutionState(row["state"]).ended:
                raise Invalid(f"execution {execution_id} has ended; kick off a new one")
            sequence: int = row["sequence"]
            delivery_count = row["deliveries"] + len(update.deliveries)
            if not update.ends:  # the end always has room
                if delivery_count > self._limits.deliveries:
                    raise Invalid(
                        f"webhook calls: more than {self._limits.deliveries} in one execution; "
                        "end it"
                    )
                self._outbox.check_pending(sequence, update.deliveries)
            columns = _changed_columns(change) | self._record_tasks(row, change)
            columns |= {
                "last_event": row["last_event"] + len(update.events),
                "deliveries": delivery_count,
            }
            # The names are those of this file, never a caller's.
            assignments = ", ".join(f"{column} = :{column}" for column in columns)
            self._connection.execute(
                f"UPDATE executions SET {assignments} WHERE sequence = :sequence",  # noqa: S608
                {**columns, "sequence": sequence},
            )
            self._add_events(sequence, row["last_event"], update.events)
            if "webhooks" in change:
                self._outbox.set_targets(sequence, execution_id, change["webhooks"])
            self._outbox.queue(sequence, execution_id, update.deliveries)
            # What is left is for ends, and for the deletion of old executions. A worker that starts
            # needs room as well, as in `create`.
            if not update.ends and not self._file.has_room():
                raise disk_full()
            if update.ends or "webhooks" in change:
                self._outbox.drop_unneeded_targets(sequence)

    def read(
        self, execution_id: str, *, crew: str | None = None, owner: str | None = None
    ) -> Execution | None:
        """Return the execution; None if no execution has this id, or it was pruned.

        Returns None also if it has another `crew` or `owner`, where given.
        """
        with self._file.reading():
            row = self._connection.execute(
                "SELECT * FROM executions JOIN kickoffs ON execution = sequence WHERE id = :id "
                "AND (:crew IS NULL OR crew = :crew) AND (:owner IS NULL OR owner = :owner)",
                {"id": execution_id, "crew": crew, "owner": owner},
            ).fetchone()
            if row is None:
                return None
            tasks = self._connection.execute(
                "SELECT record FROM tasks WHERE execution = ? ORDER BY number", (row["sequence"],)
            )
            execution = Execution(
                **_summary_fields(row),
                inputs=cast("dict[str, JsonValue]", decode(row["inputs"])),
                meta=decode(row["meta"]),
                webhooks=self._outbox.targets(row["sequence"], execution_id),
                result=row["result"],
                result_json=decode(row["result_json"]),
                tasks=tuple(_task(task["record"]) for task in tasks),
                last_step=decode(row["last_step"]),
            )
            self.chars_read += row["tasks_size"]
            self.chars_read += sum(len(each) for each in row if type(each) is str)
            return execution

    def summary(
        self, execution_id: str, *, crew: str | None = None, owner: str | None = None
    ) -> Summary | None:
        """Return the execution without what may be large. Returns None as `read` does."""
        with self._file.reading():
            row = self._connection.execute(
                f"SELECT {_SUMMARY} FROM executions WHERE id = :id "  # noqa: S608 - our names
                "AND (:crew IS NULL OR crew = :crew) AND (:owner IS NULL OR owner = :owner)",
                {"id": execution_id, "crew": crew, "owner": owner},
            ).fetchone()
            return None if row is None else Summary(**_summary_fields(row))

    def unfinished(self) -> list[Summary]:
        """Return the executions that have not ended, in the order of their creation."""
        with self._file.reading():
            rows = self._connection.execute(
                f"SELECT {_SUMMARY} FROM executions "  # noqa: S608 - our names
                "INDEXED BY executions_unfinished WHERE finished_at IS NULL ORDER BY sequence"
            )
            return [Summary(**_summary_fields(row)) for row in rows]

    def page(
        self,
        crew: str,
        *,
        owner: str | None = None,
        state: ExecutionState | None = None,
        limit: int,
        cursor: str | None = None,
    ) -> ListPage:
        """Return at most `limit` executions of a crew, newest first.

        An `owner` of None stands for everybody, "" for the organization token. Raises `Invalid` for
        a cursor that no list can have given.
        """
        with self._file.reading():
            wanted: dict[str, str | int] = {"crew": crew}
            if owner is not None:
                wanted["owner"] = owner
            if state is not None:
                wanted["state"] = state
            conditions = [f"{column} = :{column}" for column in wanted]
            if cursor is not None:
                wanted["before"] = _read_cursor(cursor)
                conditions.append("sequence < :before")
            # The names are those of this file, never a caller's.
            statement = (
                f"SELECT {_SUMMARY} FROM executions "  # noqa: S608
                f"WHERE {' AND '.join(conditions)} ORDER BY sequence DESC LIMIT :limit"
            )
            rows = self._connection.execute(statement, {**wanted, "limit": limit + 1}).fetchall()
            found = tuple(Summary(**_summary_fields(row)) for row in rows[:limit])
            if len(rows) <= limit:
                return ListPage(found, None)
            return ListPage(found, _cursor(found[-1].sequence))

    def events(
        self, execution_id: str, *, after: int, limit: int, offset: int = 0
    ) -> list[ExecutionEvent]:
        """Return events numbered above `after`: at most `limit`, and fewer if they are large.

        A large event comes alone, and only its first part: pass the `end` of the last part as
        `offset` for the next.
        """
        with self._file.reading():
            rows = self._connection.execute(
                "SELECT rowid, number, timestamp, type, "
                "iif(:offset, NULL, substr(CAST(data AS BLOB), 1, :most)) AS beginning FROM events "
                "WHERE execution = (SELECT sequence FROM executions WHERE id = :id) "
                "AND number > :after ORDER BY number LIMIT :limit",
                {
                    "id": execution_id,
                    "after": after,
                    "offset": offset,
                    "most": EVENT_PART_BYTES,
                    "limit": 1 if offset else limit,
                },
            )
            found: list[ExecutionEvent] = []
            together = 0
            for row in rows:
                data = row["beginning"] or b""
                size = len(data)
                together += len(row["type"]) + size
                if found and together > EVENT_PART_BYTES:
                    break
                if offset or size == EVENT_PART_BYTES:
                    data, size = self._event_part(row["rowid"], offset)
                at = moment(row["timestamp"])
                found.append(ExecutionEvent(row["number"], at, row["type"], data, size, offset))
            return found

    def count_events(self, execution_id: str, kind: str) -> int:
        """Return how many events of a type an execution has."""
        with self._file.reading():
            (count,) = self._connection.execute(
                "SELECT count(*) FROM events "
                "WHERE execution = (SELECT sequence FROM executions WHERE id = ?) "
                "AND type = ?",
                (execution_id, kind),
            ).fetchone()
            return int(count)

    def _add_key(self, new: NewExecution, key: IdempotencyKey) -> None:
        expires_at = micros(new.created_at + KEY_LIFETIME)
        # In place of an expired one: `create` has found no valid one, and nobody else writes.
        self._connection.execute(
            "INSERT OR REPLACE INTO idempotency "
            "(crew, owner, key, digest, execution, expires_at) VALUES (?, ?, ?, ?, ?, ?)",
            (new.crew, new.owner, key.key, digest(key.body), new.id, expires_at),
        )

    def _record_tasks(self, row: sqlite3.Row, change: Change) -> _Columns:
        sequence, count, size = row["sequence"], row["completed_tasks"], row["tasks_size"]
        if change.get("drop_tasks"):
            self._connection.execute("DELETE FROM tasks WHERE execution = ?", (sequence,))
            count = size = 0
        for task in change.get("new_tasks", ()):
            content = encode("task", asdict(task)) or ""
            count += 1
            size += len(content)
            self._connection.execute(
                "INSERT INTO tasks VALUES (?, ?, ?)", (sequence, count, content)
            )
        return {"completed_tasks": count, "tasks_size": size}

    def _add_events(self, sequence: int, last: int, new: Sequence[NewEvent]) -> None:
        self._connection.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
            [
                (
                    sequence,
                    number,
                    micros(event.timestamp),
                    text("event type", event.type),
                    encode("event data", event.data),
                )
                for number, event in enumerate(new, last + 1)
            ],
        )

    def _event_part(self, rowid: int, offset: int) -> tuple[bytes, int]:
        """Return a part of an event's data, and the size of all of it. The rest is not read."""
        with self._connection.blobopen("events", "data", rowid, readonly=True) as data:
            data.seek(offset)
            part = data.read(EVENT_PART_BYTES)
            size = len(data)
        # A character that is cut in the middle comes with the next part.
        _, whole = codecs.utf_8_decode(part, "strict", False)
        return part[:whole], size


def _changed_columns(change: Change) -> _Columns:
    """Return the new values of the plain columns."""
    columns: _Columns = {}
    if "status" in change:
        columns |= {"status": change["status"], "state": change["status"].state}
    if "total_tasks" in change:
        columns["total_tasks"] = change["total_tasks"]
    given = cast("Mapping[str, Any]", change)
    for name in _TEXTS:
        if name in given:
            columns[name] = None if given[name] is None else text(name, given[name])
    for name in _JSON:
        if name in given:
            columns[name] = encode(name, given[name])
    for name in _MOMENTS:
        if name in given:
            columns[name] = None if given[name] is None else micros(given[name])
    return columns


def _summary_fields(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in _SUMMARY_COLUMNS} | {
        "status": Status(row["status"]),
        "created_at": moment(row["created_at"]),
        "started_at": optional_moment(row["started_at"]),
        "finished_at": optional_moment(row["finished_at"]),
    }


def _task(content: str) -> TaskRecord:
    return TaskRecord(**cast("dict[str, Any]", decode(content)))


def _cursor(sequence: int) -> str:
    # In clear. Why: docs/decisions/078-list-cursors.md.
    return base64.urlsafe_b64encode(sequence.to_bytes(_CURSOR_BYTES)).decode()


def _read_cursor(cursor: str) -> int:
    try:
        content = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except ValueError:  # also for text that is not ASCII
        content = b""
    if len(content) != _CURSOR_BYTES:
        raise Invalid("cursor: not one that this list gave; leave it out to begin with the newest")
    return int.from_bytes(content, signed=True)  # as SQLite's integers, so that each one fits
