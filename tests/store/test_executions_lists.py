"""Lists: newest first, page by page, each to those it belongs to; and no question reads a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.store import database as store_module
from smartlinkd.store.database import StoreDatabase, open_file
from smartlinkd.store.model import (
    Change,
    ExecutionState,
    ExecutionUpdate,
    IdempotencyKey,
    NewDelivery,
    NewEvent,
    NewExecution,
    Retention,
    Status,
    WebhookTarget,
)

Create = Callable[..., str]


def ids(
    store: StoreDatabase, owner: str | None = None, state: ExecutionState | None = None
) -> list[str]:
    return [item.id for item in store.executions("deal-post", owner, state, 100, None).executions]


def test_executions_of_a_crew_are_listed_newest_first(store: StoreDatabase, create: Create) -> None:
    created = [create(), create()]
    create(crew="another")

    assert ids(store) == created[::-1]


def test_list_is_filtered_by_owner_and_state(
    store: StoreDatabase, create: Create, finish: Callable[..., None]
) -> None:
    mine, hers, organizations = create(owner="an"), create(owner="binh"), create(owner="")
    mine_done = create(owner="an")
    finish(mine_done)

    assert ids(store, owner="an") == [mine_done, mine]
    assert ids(store, owner="") == [organizations]
    assert ids(store, state=ExecutionState.PENDING) == [organizations, hers, mine]
    assert ids(store, owner="an", state=ExecutionState.SUCCESS) == [mine_done]
    assert ids(store, owner="binh", state=ExecutionState.FAILED) == []


def test_list_has_summaries(store: StoreDatabase, create: Create, now: datetime) -> None:
    execution_id = create(owner="an")
    change = Change(status=Status.ERROR, finished_at=now, error="broke", total_tasks=2)
    store.record(execution_id, ExecutionUpdate(change, [NewEvent("end", now)]))

    (found,) = store.executions("deal-post", None, None, 10, None).executions

    assert (found.id, found.crew, found.owner) == (execution_id, "deal-post", "an")
    assert (found.status, found.state, found.error) == (
        Status.ERROR,
        ExecutionState.FAILED,
        "broke",
    )
    assert (found.created_at, found.finished_at, found.started_at) == (now, now, None)
    assert (found.completed_tasks, found.total_tasks) == (0, 2)


def test_pages_have_each_execution_once_while_more_are_created(
    store: StoreDatabase, create: Create
) -> None:
    created = [create() for _ in range(7)]
    found: list[str] = []
    cursor = None
    while True:
        page = store.executions("deal-post", None, None, 3, cursor)
        found += [item.id for item in page.executions]
        cursor = page.next_cursor
        if cursor is None:
            break
        create()

    assert found == created[::-1]


def test_full_last_page_has_no_cursor(store: StoreDatabase, create: Create) -> None:
    for _ in range(3):
        create()

    assert store.executions("deal-post", None, None, 3, None).next_cursor is None


def test_page_has_a_hundred_executions_at_most(store: StoreDatabase, create: Create) -> None:
    for _ in range(101):
        create()

    assert len(store.executions("deal-post", None, None, 1000, None).executions) == 100


@pytest.fixture
def cursor(store: StoreDatabase, create: Create) -> str:
    """A cursor that user `an` was given."""
    create(owner="an")
    create(owner="an")
    cursor = store.executions("deal-post", "an", None, 1, None).next_cursor
    assert cursor is not None
    return cursor


def test_cursor_of_another_user_lists_only_own_executions(
    store: StoreDatabase, create: Create, cursor: str
) -> None:
    create(owner="binh")
    created = [item.id for item in store.executions("deal-post", "an", None, 10, cursor).executions]

    assert store.executions("deal-post", "binh", None, 10, cursor).executions == ()
    assert ids(store, owner="an")[-1:] == created
    assert store.executions("other", "an", None, 10, cursor).executions == ()


def test_cursor_of_the_largest_number_lists_everything(
    store: StoreDatabase, create: Create
) -> None:
    created = create()

    (found,) = store.executions("deal-post", None, None, 10, "f_________8=").executions

    assert found.id == created


@pytest.mark.parametrize(
    "wrong", ["", "3", "AAAA", "x" * 48, "AAAAAAAAAAE", "%%%", "é", "A" * 5000]
)
def test_wrong_cursor_is_refused_with_a_way_out(store: StoreDatabase, wrong: str) -> None:
    """Lists gave sealed cursors of 48 characters before decision 078."""
    with pytest.raises(Invalid, match=r"^cursor: .*leave it out"):
        store.executions("deal-post", "an", None, 1, wrong)


@pytest.mark.parametrize(
    ("owner", "state", "columns"),
    [
        (None, None, "crew=?"),
        ("an", None, "crew=? AND owner=?"),
        (None, ExecutionState.SUCCESS, "crew=? AND state=?"),
        ("an", ExecutionState.SUCCESS, "crew=? AND owner=? AND state=?"),
    ],
)
def test_list_is_read_by_an_index_of_its_filters(
    path: Path,
    open_store: Callable[..., StoreDatabase],
    monkeypatch: pytest.MonkeyPatch,
    *,
    owner: str | None,
    state: ExecutionState | None,
    columns: str,
) -> None:
    """Else the rare FAILED one would be looked for among all that went well."""
    asked = asked_of_the_next_store(monkeypatch)
    open_store().executions("deal-post", owner, state, 10, None)

    with closing(open_file(path)) as connection:
        (step,) = plan(connection, asked[-1])

    assert step.endswith(f"({columns})")


SMALL = ("executions_unfinished", "webhooks_credential", "pruned", "names", "CONSTANT ROW")
"""Read from end to end on purpose: indices of few rows, and no tables at all."""


def test_no_statement_reads_or_sorts_a_whole_table(
    path: Path,
    open_store: Callable[..., StoreDatabase],
    new: Callable[..., NewExecution],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asked_of_the_next_store(monkeypatch)

    ask_everything(open_store(), new(webhooks=(WebhookTarget("crew", "https://a.example"),)), now)

    questions = {one for one in asked if one.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")}
    assert len(questions) > 30
    with closing(open_file(path)) as connection:
        plans = {question: plan(connection, question) for question in questions}
    assert [steps for steps in plans.values() if dear(steps)] == []


def asked_of_the_next_store(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements as they reach SQLite, from now on."""
    asked: list[str] = []

    def opened(path: Path, **options: Any) -> sqlite3.Connection:
        connection = open_file(path, **options)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(store_module, "open_file", opened)
    return asked


def ask_everything(store: StoreDatabase, given: NewExecution, now: datetime) -> None:
    key = IdempotencyKey("k", {})
    store.create(given, key)
    store.created_by("deal-post", "", key, now)
    calls = [NewDelivery(given.webhooks[0], b"{}", now)]
    store.record(
        given.id, ExecutionUpdate(Change(status=Status.RUNNING), [NewEvent("a", now)], calls)
    )
    store.execution(given.id)
    store.events(given.id, 0, 10)
    store.count_bare_events(given.id, "a")
    store.unfinished()
    for owner in (None, "an"):
        for state in (None, ExecutionState.SUCCESS):
            store.executions("deal-post", owner, state, 10, None)
    (delivery,) = store.due_deliveries(now, 10, [99], ["https://b.example"])
    store.reschedule(delivery.id, now)
    store.remove_delivery(delivery.id)
    end = Change(status=Status.STOPPED, finished_at=now, webhooks=(), drop_tasks=True)
    store.record(given.id, ExecutionUpdate(end))
    kept = Retention(age=timedelta(hours=1), count=1)
    assert store.prune_some(now + timedelta(days=2), kept, far_keys=True).executions == 1


def plan(connection: sqlite3.Connection, question: str) -> list[str]:
    return [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {question}")]


def dear(steps: list[str]) -> bool:
    """Return True if a step costs more the more executions there are."""
    scans = [step for step in steps if step.startswith("SCAN")]
    sorts = [step for step in steps if "TEMP B-TREE" in step]
    return bool(sorts) or any(not any(name in step for name in SMALL) for step in scans)
