"""Lists: pages, ownership, and no query that reads a whole table."""

from __future__ import annotations

import sqlite3
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    ExecutionState,
    IdempotencyKey,
    NewDelivery,
    NewEvent,
    NewExecution,
    Retention,
    Status,
    Summary,
    WebhookTarget,
)
from tests.store.calls import NOW, Connections, create, events, finish, known, new, record


def ids(store: StoreDatabase, *, limit: int = 100, **wanted: Any) -> list[str]:
    page = store.executions.page("deal-post", limit=limit, **wanted)
    return [item.id for item in page.executions]


def test_list_is_filtered_by_owner_and_state(store: StoreDatabase) -> None:
    mine, hers, organizations = (
        create(store, owner="an"),
        create(store, owner="binh"),
        create(store, owner=""),
    )
    mine_done = create(store, owner="an")
    finish(store, mine_done)

    assert ids(store, owner="an") == [mine_done, mine]
    assert ids(store, owner="") == [organizations]
    assert ids(store, state=ExecutionState.PENDING) == [organizations, hers, mine]
    assert ids(store, owner="an", state=ExecutionState.SUCCESS) == [mine_done]
    assert ids(store, owner="binh", state=ExecutionState.FAILED) == []


def test_list_has_summaries(store: StoreDatabase) -> None:
    execution_id = create(store, owner="an")
    record(store, execution_id, status=Status.ERROR, finished_at=NOW, error="broke", total_tasks=2)

    (found,) = store.executions.page("deal-post", limit=10).executions

    whole = vars(known(store, execution_id))
    assert vars(found) == {field.name: whole[field.name] for field in fields(Summary)}
    assert store.executions.summary(execution_id) == found


@pytest.mark.parametrize("count", [6, 7])  # the last page is full, or not
def test_pages_have_each_execution_once_while_more_are_created(
    store: StoreDatabase, count: int
) -> None:
    created = [create(store) for _ in range(count)]
    found: list[str] = []
    cursor = None
    while True:
        page = store.executions.page("deal-post", limit=3, cursor=cursor)
        assert page.executions
        found += [item.id for item in page.executions]
        cursor = page.next_cursor
        if cursor is None:
            break
        create(store)

    assert found == created[::-1]


def test_cursor_of_another_user_lists_only_own_executions(store: StoreDatabase) -> None:
    first, _, _ = create(store, owner="an"), create(store, owner="an"), create(store, owner="binh")
    cursor = store.executions.page("deal-post", owner="an", limit=1).next_cursor

    assert ids(store, owner="binh", cursor=cursor) == []
    assert ids(store, owner="an", cursor=cursor) == [first]
    assert store.executions.page("other", owner="an", limit=10, cursor=cursor).executions == ()


def test_cursor_of_the_largest_number_lists_everything(store: StoreDatabase) -> None:
    created = create(store)

    assert ids(store, cursor="f_________8=") == [created]


@pytest.mark.parametrize(
    "wrong", ["", "3", "AAAA", "x" * 48, "AAAAAAAAAAE", "%%%", "é", "A" * 5000]
)
def test_wrong_cursor_is_refused_with_a_way_out(store: StoreDatabase, wrong: str) -> None:
    """Cursors were sealed texts of 48 characters before decision 078."""
    with pytest.raises(Invalid, match=r"^cursor: .*leave it out"):
        store.executions.page("deal-post", owner="an", limit=1, cursor=wrong)


SMALL = ("executions_unfinished", "executions_crew", "webhooks_credential", "pruned")
"""Indices and small tables that a query may read from end to end."""


def test_no_statement_reads_or_sorts_a_whole_table(
    store: StoreDatabase,
    connections: Connections,
) -> None:
    asked: list[str] = []
    (connection,) = connections
    connection.set_trace_callback(asked.append)

    run_every_statement(store, new(webhooks=(WebhookTarget("crew", "https://a.example"),)))
    connection.set_trace_callback(None)

    questions = {one for one in asked if one.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")}
    assert len(questions) > 30
    plans = {question: plan(connection, question) for question in questions}
    assert [steps for steps in plans.values() if is_expensive(steps)] == []


def run_every_statement(store: StoreDatabase, given: NewExecution) -> None:
    key = IdempotencyKey("k", {})
    store.executions.create(given, key)
    store.executions.created_by("deal-post", "", key, NOW)
    calls = [NewDelivery(given.webhooks[0], b"{}", NOW)]
    record(store, given.id, NewEvent("a", NOW), deliveries=calls, status=Status.RUNNING)
    store.executions.read(given.id)
    events(store, given.id)
    store.executions.count_events(given.id, "a")
    store.executions.unfinished()
    for owner in (None, "an"):
        for state in (None, ExecutionState.SUCCESS):
            store.executions.page("deal-post", owner=owner, state=state, limit=10)
    (delivery,) = store.outbox.due(NOW, 10, except_ids=[99], except_origins=["https://b.example"])
    store.outbox.reschedule(delivery.id, NOW)
    store.outbox.remove(delivery.id)
    end: dict[str, Any] = {"status": Status.STOPPED, "finished_at": NOW}
    record(store, given.id, webhooks=(), drop_tasks=True, **end)
    kept = Retention(age=timedelta(hours=1), count=1)
    assert store.prune_some(NOW + timedelta(days=2), kept) == (1, True)


def plan(connection: sqlite3.Connection, question: str) -> list[str]:
    return [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {question}")]


def is_expensive(steps: list[str]) -> bool:
    """Return True if a step costs more with more executions."""
    scans = [step for step in steps if step.startswith("SCAN")]
    sorts = [step for step in steps if "TEMP B-TREE" in step]
    return bool(sorts) or any(not any(name in step for name in SMALL) for step in scans)
