"""Batches: several calls share one transaction, or none is applied."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionUpdate,
    NewExecution,
    Status,
    StoreLimits,
)
from tests.store.calls import Connections, new, record, unfinished
from tests.supervision.conftest import note

Question = Callable[[StoreDatabase], object]


def recording(id_: str, tasks: int) -> Question:
    return lambda store: record(store, id_, total_tasks=tasks)


def reading(id_: str) -> Question:
    return lambda store: store.executions.read(id_)


def creating(new: NewExecution) -> Question:
    return lambda store: store.executions.create(new)


def tasks_of(found: object) -> int | None:
    assert isinstance(found, Execution)
    return found.total_tasks


def commits(connection: sqlite3.Connection) -> list[str]:
    """Return a list of the commits from now on."""
    seen: list[str] = []
    connection.set_trace_callback(lambda said: seen.append(said) if said == "COMMIT" else None)
    return seen


def test_concurrent_writes_share_a_transaction_in_order(
    store: StoreDatabase, connections: Connections
) -> None:
    first, second = new(), new()
    seen = commits(connections[0])

    found = store.run_together(
        [
            creating(first),
            creating(second),
            recording(first.id, 3),
            reading(first.id),
            recording(first.id, 4),
            reading(first.id),
        ]
    )

    assert seen == ["COMMIT"]
    assert (tasks_of(found[3]), tasks_of(found[5])) == (3, 4)
    assert unfinished(store) == [first.id, second.id]


@pytest.mark.parametrize("store_limits", [StoreLimits(chars_together=300)])
def test_large_reads_are_not_batched(store: StoreDatabase) -> None:
    given = new(inputs={"topic": "x" * 200})
    store.executions.create(given)

    for _ in range(2):  # each batch starts with an empty bound
        found = store.run_together([reading(given.id)] * 5)
        assert len(found) == 2


def test_refused_write_in_a_batch_leaves_the_others(
    store: StoreDatabase, connections: Connections
) -> None:
    over = new()
    store.executions.create(over)
    record(store, over.id, status=Status.COMPLETED, finished_at=over.created_at)

    with pytest.raises(Invalid, match="has ended"):
        store.run_together([creating(new()), recording(over.id, 1), creating(new())])

    assert not connections[0].in_transaction
    assert store.executions.unfinished() == []


def test_batch_that_fails_at_its_commit_changes_nothing(
    store: StoreDatabase, connections: Connections
) -> None:
    given = new()
    store.executions.create(given)
    (connection,) = connections

    def no_commit(action: int, argument: str | None, *_: object) -> int:
        ends = action == sqlite3.SQLITE_TRANSACTION and argument == "COMMIT"
        return sqlite3.SQLITE_DENY if ends else sqlite3.SQLITE_OK

    connection.set_authorizer(no_commit)
    with pytest.raises(sqlite3.DatabaseError):
        store.run_together([recording(given.id, 2), creating(new())])
    connection.set_authorizer(None)

    assert not connection.in_transaction
    assert unfinished(store) == [given.id]
    assert tasks_of(store.executions.read(given.id)) is None


async def ask_together(journal: Store, *questions: Awaitable[object]) -> list[object]:
    """Make these calls in one batch; return the answers."""
    answers: list[object] = []
    async with trio.open_nursery() as asking:
        held = threading.Event()
        asking.start_soon(journal.mailbox.ask, lambda _: held.wait(10))
        await wait_all_tasks_blocked()
        for question in questions:
            asking.start_soon(note, answers, question)
            await wait_all_tasks_blocked()
        held.set()
    return answers


async def test_batch_on_a_full_disk_answers_reads_and_refuses_writes(
    connections: Connections, journal: Store
) -> None:
    given, large = new(), new(inputs={"x": "y" * 100_000})
    await journal.create(given, idempotency=None)
    (connection,) = connections
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()

    told = await ask_together(
        journal,
        journal.record(given.id, ExecutionUpdate(Change(total_tasks=2))),
        journal.create(large, idempotency=None),
        journal.execution(given.id),
    )

    assert told[0] is None
    assert isinstance(told[1], Unavailable)
    assert tasks_of(told[2]) == 2
    assert await journal.execution(large.id) is None


async def test_batch_on_a_moved_file_is_refused(path: Path, journal: Store) -> None:
    path.rename(path.with_name("moved"))  # noqa: ASYNC240 - a rename does not block
    refused = await ask_together(
        journal, *(journal.create(new(), idempotency=None) for _ in range(3))
    )

    assert [type(each) for each in refused] == [Unavailable] * 3
