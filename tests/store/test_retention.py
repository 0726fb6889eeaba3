"""Retention: which executions are pruned, and that the file shrinks."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    IdempotencyKey,
    NewDelivery,
    NewEvent,
    Retention,
    Status,
    StoreLimits,
    TaskRecord,
    WebhookTarget,
)
from tests.store.calls import NOW, create, events, finish, known, new, record, unfinished

WEEK = Retention(age=timedelta(days=7), count=1000)
TWO = Retention(age=timedelta(days=7), count=2)
DAY = timedelta(days=1)
TARGET = WebhookTarget("crew", "https://a.example")


def prune(store: StoreDatabase, now: datetime, kept: Retention) -> int:
    """Prune in batches until nothing is left to prune."""
    pruned, has_more = 0, True
    while has_more:
        deleted, has_more = store.prune_some(now, kept)
        pruned += deleted
    return pruned


def rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall()
        return {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for (name,) in tables
        }


def test_executions_beyond_their_age_are_pruned_and_others_stay_whole(store: StoreDatabase) -> None:
    old, young = create(store), create(store, webhooks=(TARGET,))
    for one in (old, young):
        record(store, one, NewEvent("e", NOW), new_tasks=[TaskRecord("t")])
    finish(store, old)
    finish(store, young, later=DAY)
    before = store.executions.read(young)

    assert prune(store, NOW + 7 * DAY, WEEK) == 0
    assert prune(store, NOW + 7.5 * DAY, WEEK) == 1

    assert store.executions.read(old) is None
    assert store.executions.read(young) == before
    assert len(events(store, young)) == 1


def test_executions_beyond_a_crews_count_are_pruned_oldest_first(store: StoreDatabase) -> None:
    ids = [create(store) for _ in range(5)]
    others = [create(store, crew="another") for _ in range(2)]
    for number, execution_id in enumerate(ids + others):
        finish(store, execution_id, later=timedelta(minutes=number))

    assert prune(store, NOW + DAY, TWO) == 3

    assert [one for one in ids if store.executions.read(one)] == ids[3:]
    assert [one for one in others if store.executions.read(one)] == others


def test_unfinished_execution_is_never_pruned(store: StoreDatabase) -> None:
    pending, running, waiting = create(store), create(store), create(store)
    record(store, running, status=Status.RUNNING)
    record(store, waiting, status=Status.WAITING_FOR_HUMAN_INPUT)

    assert prune(store, NOW + 1000 * DAY, TWO) == 0

    assert unfinished(store) == [pending, running, waiting]


def test_execution_that_ended_by_a_clock_that_was_ahead_takes_no_others_place(
    store: StoreDatabase,
) -> None:
    ahead, real = [create(store), create(store)], create(store)
    for execution_id in ahead:
        finish(store, execution_id, later=DAY)
    finish(store, real, later=timedelta(minutes=1))

    assert prune(store, NOW + timedelta(minutes=2), TWO) == 0
    assert prune(store, NOW + 2 * DAY, TWO) == 1

    assert [each for each in (*ahead, real) if store.executions.read(each)] == ahead


def test_execution_with_a_waiting_delivery_is_not_pruned(store: StoreDatabase) -> None:
    execution_id = create(store)
    calls = [NewDelivery(TARGET, b"{}", NOW)]
    record(store, execution_id, deliveries=calls, status=Status.STOPPED, finished_at=NOW)
    assert prune(store, NOW + 8 * DAY, WEEK) == 0

    store.outbox.remove(store.outbox.due(NOW, 1)[0].id)

    assert prune(store, NOW + 8 * DAY, WEEK) == 1


def test_pruned_execution_leaves_no_row(store: StoreDatabase, path: Path) -> None:
    given = new(webhooks=(TARGET,))
    store.executions.create(given, IdempotencyKey("k", {}))
    parts = [NewEvent("e", NOW)] * 250
    record(store, given.id, *parts, new_tasks=[TaskRecord("t")] * 250)
    record(store, given.id, status=Status.ERROR, finished_at=NOW)

    assert prune(store, NOW + 8 * DAY, WEEK) == 1

    assert set(rows(path).values()) == {0}


def test_execution_of_a_valid_key_is_not_pruned(store: StoreDatabase) -> None:
    """The key's holder must neither start the work again nor get the id of a deleted execution."""
    given = new()
    store.executions.create(given, IdempotencyKey("k", {}))
    finish(store, given.id)
    hour = Retention(age=timedelta(hours=1), count=10)

    assert prune(store, NOW + timedelta(hours=23), hour) == 0
    again = store.executions.create(
        new(created_at=NOW + timedelta(hours=23)), IdempotencyKey("k", {})
    )
    assert again == given.id
    assert store.executions.read(given.id) is not None

    assert prune(store, NOW + timedelta(hours=25), hour) == 1


def test_sequence_number_is_not_used_again(store: StoreDatabase) -> None:
    """Otherwise events of an execution that is still being pruned would belong to another one."""
    finish(store, create(store))
    prune(store, NOW + 8 * DAY, WEEK)

    assert known(store, create(store)).sequence == 2


@pytest.mark.parametrize("store_limits", [StoreLimits(pruned_rows=2)])
def test_pruning_is_done_in_batches(store: StoreDatabase, path: Path) -> None:
    for _ in range(12):
        execution_id = create(store)
        record(store, execution_id, NewEvent("e", NOW))
        finish(store, execution_id)

    assert store.prune_some(NOW + 8 * DAY, WEEK) == (10, True)
    assert rows(path)["events"] == 10
    assert prune(store, NOW + 8 * DAY, WEEK) == 2
    assert rows(path)["events"] == 0


@pytest.mark.parametrize("store_limits", [StoreLimits(pruned_rows=1)])
async def test_calls_are_answered_between_two_batches(
    journal: Store,
) -> None:
    other, forgotten = new(), new()
    await journal.create(other, idempotency=None)
    await journal.create(forgotten, idempotency=None)
    end = Change(status=Status.STOPPED, finished_at=NOW)
    await journal.record(forgotten.id, ExecutionUpdate(end, [NewEvent("e", NOW)] * 30))
    ended: list[str] = []

    async def prune_all() -> None:
        assert await journal.prune(NOW + 40 * DAY) == 1
        ended.append("pruning")

    async def look() -> None:
        assert await journal.execution(other.id) is not None
        ended.append("looking")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prune_all)
        nursery.start_soon(look)

    assert ended == ["looking", "pruning"]


LARGE = {"x": "y" * 20_000}
LATER = timedelta(days=8)


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as other_program:
        (value,) = other_program.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def size(path: Path) -> int:
    """Return the bytes of the file and its log."""
    return path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size


@pytest.mark.parametrize("store_limits", [StoreLimits(pages_at_once=1)])
def test_free_pages_are_cut_off_the_file_in_batches(store: StoreDatabase, path: Path) -> None:
    create(store, inputs=LARGE)
    for _ in range(19):
        finish(store, create(store, inputs=LARGE))
    prune(store, NOW + LATER, WEEK)
    before, free = pragma(path, "page_count"), pragma(path, "freelist_count")
    assert free > 90
    batches = 1
    while store.release_some_pages():
        batches += 1
    assert pragma(path, "freelist_count") == 0
    assert pragma(path, "page_count") <= before - free
    assert batches >= free - 1  # the page with the free list is released with another one
    assert [known(store, each).inputs for each in unfinished(store)] == [LARGE]


async def test_pruning_shrinks_file_and_log(
    journal: Store, wall: SimpleNamespace, path: Path
) -> None:
    """The file and its log shrink although others write at the same time."""
    stays, *go = [new(inputs=LARGE) for _ in range(20)]
    for each in (stays, *go):
        await journal.create(each, idempotency=None)
    for each in go:
        end = Change(status=Status.STOPPED, finished_at=wall.now)
        await journal.record(each.id, ExecutionUpdate(end))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.prune, wall.now + 5 * LATER)
        for step in range(5):
            nursery.start_soon(journal.record, stays.id, ExecutionUpdate(Change(last_step=step)))
    assert size(path) < 10 * len(str(LARGE))


async def test_file_without_auto_vacuum_is_pruned_and_keeps_its_size(
    *,
    store: StoreDatabase,
    path: Path,
    handle: Store,
    nursery: trio.Nursery,
) -> None:
    """The file was made before pages could be released."""
    ids = [create(store, inputs=LARGE) for _ in range(5)]
    store.close()
    with closing(sqlite3.connect(path)) as other_program:
        other_program.execute("PRAGMA auto_vacuum = NONE")
        other_program.execute("VACUUM")

    await nursery.start(handle.run)
    for each in ids:
        end = Change(status=Status.STOPPED, finished_at=NOW)
        await handle.record(each, ExecutionUpdate(end))

    with trio.fail_after(10):
        assert await handle.prune(NOW + 5 * LATER) == len(ids)

    assert pragma(path, "freelist_count") > 2
    assert pragma(path, "auto_vacuum") == 0
