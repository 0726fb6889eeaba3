"""A store and an execution, and calls of tests to an open store: record, queue calls, read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretBytes

from smartlinkd.store import file as file_module
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.file import open_file
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionEvent,
    ExecutionUpdate,
    NewDelivery,
    NewEvent,
    NewExecution,
    Retention,
    Status,
    WebhookTarget,
)

Connections = list[sqlite3.Connection]

TASK = WebhookTarget("task", "https://a.example/task")
CREW = WebhookTarget("crew", "https://a.example/crew")
STREAM = WebhookTarget("stream", "https://a.example/stream", events=("x",))
SECOND = timedelta(seconds=1)
KEY = SecretBytes(b"k" * 32)
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
    return NewExecution(**(usual | different))  # type: ignore[arg-type]  # a dict has one type of value


def make_store(path: Path, **different: Any) -> Store:
    """Return the store's actor on this file, not running."""
    usual: dict[str, Any] = {
        "key": KEY,
        "retention": Retention(age=timedelta(days=30), count=1000),
    }
    return Store(path, **(usual | different))


def note_connections(patch: pytest.MonkeyPatch) -> Connections:
    """Return the list of the connections of stores that are opened from now on."""
    opened: Connections = []

    def opening(path: Path, **options: Any) -> sqlite3.Connection:
        opened.append(open_file(path, **options))
        return opened[-1]

    patch.setattr(file_module, "open_file", opening)
    return opened


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


def create(store: StoreDatabase, **different: object) -> str:
    """Create an execution and return its id."""
    return store.executions.create(new(**different))


def finish(store: StoreDatabase, execution_id: str, *, later: timedelta = timedelta(0)) -> None:
    """End an execution, `later` after now."""
    record(store, execution_id, status=Status.COMPLETED, result="done", finished_at=NOW + later)


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
