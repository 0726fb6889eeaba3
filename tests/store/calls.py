"""Webhook calls in a store: who is called, queueing them, and what is due."""

from __future__ import annotations

from datetime import datetime, timedelta

from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import Change, ExecutionUpdate, NewDelivery, WebhookTarget

TASK = WebhookTarget("task", "https://a.example/task")
CREW = WebhookTarget("crew", "https://a.example/crew")
STREAM = WebhookTarget("stream", "https://a.example/stream", events=("x",))
SECOND = timedelta(seconds=1)


def queue(store: StoreDatabase, execution_id: str, *calls: NewDelivery) -> None:
    """Have these wait."""
    store.record(execution_id, ExecutionUpdate(Change(), deliveries=calls))


def bodies(store: StoreDatabase, now: datetime, limit: int = 10) -> list[bytes]:
    """Return the bodies of the due deliveries, in their order."""
    return [delivery.body for delivery in store.due_deliveries(now, limit)]
