"""An execution, and calls of tests to an open store: record, queue webhook calls, read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionEvent,
    ExecutionUpdate,
    NewDelivery,
    NewEvent,
    NewExecution,
    WebhookTarget,
)

TASK = WebhookTarget("task", "https://a.example/task")
CREW = WebhookTarget("crew", "https://a.example/crew")
STREAM = WebhookTarget("stream", "https://a.example/stream", events=("x",))
SECOND = timedelta(seconds=1)
NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
"""The time of everything for which a test gives no other time."""


def new(**different: object) -> NewExecution:
    """Return an execution with a new id."""
    usual = {
        "id": str(uuid4()),
        "crew": "deal-post",
        "owner": "",
        "created_at": NOW,
        "inputs": {"topic": "tea"},
    }
    return NewExecution(**(usual | different))  # type: ignore[arg-type]


def record(
    store: StoreDatabase,
    execution_id: str,
    *events: NewEvent,
    deliveries: Sequence[NewDelivery] = (),
    **change: Any,
) -> None:
    """Record a change with its events and webhook calls."""
    update = ExecutionUpdate(Change(**change), events, deliveries)  # type: ignore[typeddict-item]
    store.executions.record(execution_id, update)


def queue(store: StoreDatabase, execution_id: str, *calls: NewDelivery) -> None:
    """Queue webhook calls."""
    record(store, execution_id, deliveries=calls)


def known(store: StoreDatabase, execution_id: str) -> Execution:
    """Return an execution that exists."""
    execution = store.executions.read(execution_id)
    assert execution is not None
    return execution


def unfinished(store: StoreDatabase) -> list[str]:
    """Return the ids of the executions that have not ended."""
    return [execution.id for execution in store.executions.unfinished()]


def events(store: StoreDatabase, execution_id: str) -> list[ExecutionEvent]:
    """Return the first events of an execution."""
    return store.executions.events(execution_id, after=0, limit=10)


def bodies(store: StoreDatabase, now: datetime = NOW) -> list[bytes]:
    """Return the bodies of the due deliveries, in their order."""
    return [delivery.body for delivery in store.outbox.due(now, 10)]
