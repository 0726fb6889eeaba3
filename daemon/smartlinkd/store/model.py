"""What the journal keeps, as others see it.

Three shapes recur. `Execution`, `Event` and `Delivery` are read from the file. `NewExecution`,
`NewEvent` and `NewDelivery` are what an asker brings; the journal adds the numbers. `Change` says
what is different about an execution, and leaves out what is not; with what is told of it, it is an
`Entry`.

All times are aware and in UTC, to the microsecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypedDict

from pydantic import JsonValue, SecretStr
from pydantic_core import from_json

WebhookKind = Literal["task", "step", "crew", "stream", "human_input"]


class State(StrEnum):
    """The words that published clients poll for; they fail on any other."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """Whether it is the last one: an ended execution never changes again."""
        return self in (State.SUCCESS, State.FAILED)


class Status(StrEnum):
    """What is really the matter. It decides the state, so that the two never contradict."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING_FOR_HUMAN_INPUT = "waiting_for_human_input"
    COMPLETED = "completed"
    ERROR = "error"
    STOPPED = "stopped"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"

    @property
    def state(self) -> State:
        """The state that goes with it."""
        match self:
            case Status.PENDING:
                return State.PENDING
            case Status.RUNNING | Status.WAITING_FOR_HUMAN_INPUT:
                return State.RUNNING
            case Status.COMPLETED:
                return State.SUCCESS
            case _:
                return State.FAILED


@dataclass(frozen=True)
class WebhookTarget:
    """An address to call. `events` are the types that a `stream` target wants, empty for others.

    `auth` is a whole `Authorization` header value. It is encrypted in the file, and None again
    once the execution has ended and its last delivery is done.
    """

    kind: WebhookKind
    url: str
    events: tuple[str, ...] = ()
    auth: SecretStr | None = None


@dataclass(frozen=True)
class TaskRecord:
    """A task that a crew has completed. `execution_time` in seconds."""

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
    """An execution as it stands in a list: without what may be large."""

    id: str
    crew: str
    owner: str
    status: Status
    error: str | None
    current_task: str | None
    completed_tasks: int
    total_tasks: int | None
    """As the worker told, else how many were started; None before that."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    sequence: int
    """Its place in the order of creation, over all crews; never used twice."""

    @property
    def state(self) -> State:
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
    """The completed ones, in the order of their completion."""
    last_step: JsonValue = field(repr=False)


class Change(TypedDict, total=False):
    """What is different about an execution: a key that is left out stays as it was.

    `finished_at` goes together with a status that ends it, in the same change.
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
    """In place of those so far; deliveries that wait keep the target they were queued for."""
    new_tasks: Sequence[TaskRecord]
    """Added to those so far."""
    drop_tasks: bool
    """True forgets those so far first: it runs again from its beginning."""


@dataclass(frozen=True)
class NewEvent:
    """Something that happened in an execution, not numbered yet."""

    type: str
    timestamp: datetime
    data: JsonValue = field(default=None, repr=False)


@dataclass(frozen=True)
class Event:
    """Something that happened, or a part of it when its data is large.

    `number` counts from 1 in each execution, without gaps.
    """

    number: int
    timestamp: datetime
    type: str
    json: bytes = field(repr=False)
    """Its data as JSON text, from `offset` on; empty when there is none. Characters are whole."""
    size: int
    """Bytes of the JSON text in all."""
    offset: int = 0

    @property
    def end(self) -> int:
        """The offset of what follows this part."""
        return self.offset + len(self.json)

    @property
    def is_last_part(self) -> bool:
        """True if nothing of the event follows."""
        return self.end == self.size

    @property
    def data(self) -> JsonValue:
        """The data of an event that is here as a whole."""
        value: JsonValue = from_json(self.json, cache_strings="keys") if self.json else None
        return value


@dataclass(frozen=True)
class NewDelivery:
    """A webhook call to make. `target` need not be one of the execution's own."""

    target: WebhookTarget
    body: bytes = field(repr=False)
    due_at: datetime


@dataclass(frozen=True)
class Entry:
    """What is recorded of an execution together: what is different about it, the events that tell
    of that, and the webhook calls that are owed for it."""

    change: Change
    events: Sequence[NewEvent] = ()
    deliveries: Sequence[NewDelivery] = ()

    @property
    def ends(self) -> bool:
        """Whether the execution has ended with it."""
        return "status" in self.change and self.change["status"].state.ended


@dataclass(frozen=True)
class Delivery:
    """A webhook call that is still to be made. `attempts` counts the failed ones. It was due first
    at `due_since`, and is again at `next_at`."""

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
    """A client's `Idempotency-Key`, and the body it came with.

    The key is good for 24 hours, for one crew and one token. Two bodies are the same when they
    are the same JSON value: neither the order of an object's members nor spaces matter.
    """

    key: str
    body: JsonValue = field(repr=False)


@dataclass(frozen=True)
class Created:
    """The execution's id. Not `is_new`: the key had created it before."""

    id: str
    is_new: bool


@dataclass(frozen=True)
class Page:
    """Some executions, newest first. `next_cursor` leads to the older ones, None at the end."""

    executions: tuple[Summary, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class Retention:
    """How long ended executions are kept: whichever limit is reached first.

    `count`, at least 1, is for each crew, so that a busy one does not push out the others'
    executions.
    """

    age: timedelta
    count: int
