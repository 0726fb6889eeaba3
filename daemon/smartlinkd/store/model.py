"""The store's terms.

`Execution`, `ExecutionEvent` and `Delivery` are read from the file. `NewExecution`, `NewEvent` and
`NewDelivery` come from callers, and the store adds the numbers. All times are aware and in UTC, to
the microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypedDict

from pydantic import JsonValue, SecretStr

from smartlinkd.store.sqlite import BUSY_TIMEOUT_S

WebhookKind = Literal["task", "step", "crew", "stream", "human_input"]


class ExecutionState(StrEnum):
    """The state that published clients poll for. They fail on any other word."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """True if this is an execution's last state, which never changes again."""
        return self in (ExecutionState.SUCCESS, ExecutionState.FAILED)


class Status(StrEnum):
    """An execution's status in detail. It decides the state, so the two never contradict."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING_FOR_HUMAN_INPUT = "waiting_for_human_input"
    COMPLETED = "completed"
    ERROR = "error"
    STOPPED = "stopped"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"

    @property
    def state(self) -> ExecutionState:
        """The state that goes with the status."""
        match self:
            case Status.PENDING:
                return ExecutionState.PENDING
            case Status.RUNNING | Status.WAITING_FOR_HUMAN_INPUT:
                return ExecutionState.RUNNING
            case Status.COMPLETED:
                return ExecutionState.SUCCESS
            case _:
                return ExecutionState.FAILED


@dataclass(frozen=True)
class WebhookTarget:
    """An address to call. A `stream` target wants the event types in `events`; without any, all.

    `auth` is the whole value of an `Authorization` header. The store encrypts it, and forgets it
    once the execution has ended and no delivery waits for the target.
    """

    kind: WebhookKind
    url: str
    events: tuple[str, ...] = ()
    auth: SecretStr | None = None


@dataclass(frozen=True)
class TaskRecord:
    """A task that a crew has completed. `execution_time` is in seconds."""

    task_id: str
    name: str | None = None
    agent: str | None = None
    description: str | None = None
    expected_output: str | None = None
    output: str | None = None
    output_json: JsonValue = None
    execution_time: float | None = None


@dataclass(frozen=True)
class NewExecution:
    """An execution to create; it begins as `Status.PENDING`.

    `id` is a fresh UUID4. `owner` is the name of the user token, "" for the organization token.
    """

    id: str
    crew: str
    owner: str
    created_at: datetime
    inputs: dict[str, JsonValue] = field(repr=False)
    meta: JsonValue = field(default=None, repr=False)
    webhooks: tuple[WebhookTarget, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Summary:
    """An execution without what may be large, for lists."""

    id: str
    crew: str
    owner: str
    status: Status
    error: str | None
    current_task: str | None
    completed_tasks: int
    total_tasks: int | None
    """The worker's number, else how many were started; None before that."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    sequence: int
    """The place in the order of creation, over all crews. No number is used twice."""

    @property
    def state(self) -> ExecutionState:
        """The state that goes with its status."""
        return self.status.state


@dataclass(frozen=True, kw_only=True)
class Execution(Summary):
    """An execution, whole."""

    inputs: dict[str, JsonValue] = field(repr=False)
    meta: JsonValue = field(repr=False)
    webhooks: tuple[WebhookTarget, ...] = field(repr=False)
    result: str | None = field(repr=False)
    result_json: JsonValue = field(repr=False)
    tasks: tuple[TaskRecord, ...] = field(repr=False)
    """The completed tasks, in the order of their completion."""
    last_step: JsonValue = field(repr=False)


class Change(TypedDict, total=False):
    """New values of an execution. A key that is left out stays as it was.

    A status that ends the execution needs `finished_at` in the same change.
    """

    status: Status
    result: str | None
    result_json: JsonValue
    error: str | None
    current_task: str | None
    total_tasks: int | None
    last_step: JsonValue
    started_at: datetime | None
    finished_at: datetime | None
    webhooks: tuple[WebhookTarget, ...]
    """Replaces the targets so far. Deliveries that wait keep the target they were queued for."""
    new_tasks: Sequence[TaskRecord]
    """Tasks to add."""
    drop_tasks: bool
    """True deletes the tasks so far first: the execution runs again from its beginning."""


@dataclass(frozen=True)
class NewEvent:
    """An event of an execution that has no number yet."""

    type: str
    timestamp: datetime
    data: JsonValue = field(default=None, repr=False)


@dataclass(frozen=True)
class ExecutionEvent:
    """An event of an execution, or a part of one whose data is large.

    `number` counts from 1 in each execution, without gaps.
    """

    number: int
    timestamp: datetime
    type: str
    json: bytes = field(repr=False)
    """The data as JSON text, from `offset` on; empty if there is none. Characters are whole."""
    size: int
    """The size of the whole JSON text in bytes."""
    offset: int = 0

    @property
    def end(self) -> int:
        """The offset of the next part."""
        return self.offset + len(self.json)

    @property
    def is_last_part(self) -> bool:
        """True if nothing of the event follows."""
        return self.end == self.size


@dataclass(frozen=True)
class NewDelivery:
    """A webhook call to make. `target` need not be one of the execution's targets."""

    target: WebhookTarget
    body: bytes = field(repr=False)
    due_at: datetime


@dataclass(frozen=True)
class ExecutionUpdate:
    """A change of an execution with its events and webhook calls, recorded in one transaction."""

    change: Change
    events: Sequence[NewEvent] = ()
    deliveries: Sequence[NewDelivery] = ()

    @property
    def ends(self) -> bool:
        """True if the execution ends with this update."""
        return "status" in self.change and self.change["status"].state.ended


@dataclass(frozen=True)
class Delivery:
    """A webhook call that waits. `attempts` counts the failed ones.

    The call was due first at `due_since`, and is due again at `next_at`.
    """

    id: int
    execution_id: str
    crew: str
    target: WebhookTarget
    body: bytes = field(repr=False)
    attempts: int
    due_since: datetime
    next_at: datetime


@dataclass(frozen=True)
class IdempotencyKey:
    """A client's `Idempotency-Key` and the body that came with it.

    The key is valid for 24 hours, for one crew and one token. Bodies are equal if they are the same
    JSON value: the order of an object's members and spaces do not matter.
    """

    key: str
    body: JsonValue = field(repr=False)


@dataclass(frozen=True)
class ListPage:
    """Some executions, newest first. `next_cursor` leads to the older ones; None at the end."""

    executions: tuple[Summary, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class Retention:
    """How long ended executions are kept, whichever limit is reached first.

    `count`, at least 1, is for each crew, so that a busy crew does not push out those of others.
    """

    age: timedelta
    count: int


@dataclass(frozen=True)
class StoreLimits:
    """The store's own bounds. No setting changes them.

    How much a worker may send is in crews/protocol.py: it bounds events and completed tasks.
    """

    calls: int = 512
    """Calls that may wait. Every status poll is one, and takes a fraction of a millisecond."""
    calls_together: int = 32
    """Calls of one visit to the thread. The next caller waits until all of them are done."""
    chars_together: int = 1024 * 1024
    """A visit stops reading executions after so many characters, since they are in memory at the
    same time. A worker may send 16 MiB for one execution."""
    busy_timeout_s: float = BUSY_TIMEOUT_S
    """The wait for a lock of another program. Every other call waits meanwhile."""
    prune_every_s: float = 600.0
    pruned_rows: int = 200
    """Events and tasks of one batch of pruning, so that others hardly wait, and that it has room on
    a disk that is nearly full (`sqlite.py`)."""
    pages_at_once: int = 100
    """Free pages that are cut off the file in one transaction, likewise."""
    disk_look_s: float = 5.0
    """The time between two looks for room while the disk is full."""
    deliveries: int = 100_000
    """Webhook calls of one execution over its life. Those of its end are still queued beyond."""
    targets: int = 64
    """Webhook targets of one execution that are in force or that a delivery waits for."""
    pending_bytes: int = 256 * 1024 * 1024
    """Webhook bodies of one execution that may wait. Those of its end are still queued beyond.

    A worker's few bytes may become many: `meta` stands in each call but those of a stream.
    """
    deliveries_page_bytes: int = 8 * 1024 * 1024
    """Bodies of one answer; a single one may be larger."""
