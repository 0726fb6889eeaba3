"""Retention: which executions are pruned, and that the file shrinks then."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from smartlinkd.store import database as store_module
from smartlinkd.store.actor import CLOCK_SET_WITHIN, Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionUpdate,
    IdempotencyKey,
    NewDelivery,
    NewEvent,
    NewExecution,
    Retention,
    Status,
    StoreLimits,
    TaskRecord,
    WebhookTarget,
)

Create = Callable[..., str]
Finish = Callable[..., None]
WEEK = Retention(age=timedelta(days=7), count=1000)
TWO = Retention(age=timedelta(days=7), count=2)
DAY = timedelta(days=1)
TARGET = WebhookTarget("crew", "https://a.example")


def prune(store: StoreDatabase, now: datetime, kept: Retention, *, far_keys: bool = False) -> int:
    """A whole round."""
    pruned, has_more = 0, True
    while has_more:
        batch = store.prune_some(now, kept, far_keys=far_keys)
        pruned, has_more = pruned + batch.executions, batch.has_more
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


def test_executions_beyond_their_age_are_pruned(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    old, young = create(), create()
    finish(old)
    finish(young, later=DAY)

    assert prune(store, now + 7 * DAY, WEEK) == 0
    assert prune(store, now + 7.5 * DAY, WEEK) == 1

    assert store.execution(old) is None
    assert store.execution(young) is not None


def test_executions_beyond_a_crews_count_are_pruned_oldest_first(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    ids = [create() for _ in range(5)]
    others = [create(crew="another") for _ in range(2)]
    for number, execution_id in enumerate(ids + others):
        finish(execution_id, later=timedelta(minutes=number))

    assert prune(store, now + DAY, TWO) == 3

    assert [one for one in ids if store.execution(one)] == ids[3:]
    assert [one for one in others if store.execution(one)] == others


def test_key_of_a_clock_far_ahead_does_not_outlive_its_day(
    store: StoreDatabase, new: Callable[..., NewExecution], now: datetime
) -> None:
    key = IdempotencyKey("k", {})
    store.create(new(created_at=now + 365 * DAY), key)
    assert prune(store, now, TWO, far_keys=True) == 0
    assert store.create(new(created_at=now), key).is_new


async def test_key_survives_a_clock_behind_after_a_start(
    journal: Store,
    new: Callable[..., NewExecution],
    now: datetime,
    mock_clock: trio.testing.MockClock,
) -> None:
    """A machine without a battery starts at some time past, and asks for the right one then."""
    given, key = new(), IdempotencyKey("k", {})
    await journal.create(given, idempotency=key)
    mock_clock.jump(CLOCK_SET_WITHIN - 1)

    await journal.prune(now - 3 * DAY)
    assert await journal.created_by(given.crew, given.owner, key) == given.id

    mock_clock.jump(1)
    await journal.prune(now - 3 * DAY)
    assert await journal.created_by(given.crew, given.owner, key) is None


def test_execution_ended_by_a_clock_ahead_is_pruned_by_count(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    ahead, real = [create(), create()], create()
    for execution_id in ahead:
        finish(execution_id, later=DAY)
    finish(real, later=timedelta(minutes=1))

    assert prune(store, now + timedelta(minutes=2), TWO) == 0
    assert prune(store, now + 2 * DAY, TWO) == 1

    assert [each for each in (*ahead, real) if store.execution(each)] == ahead


def test_unfinished_execution_is_never_pruned(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    pending, running, waiting = create(), create(), create()
    store.record(running, ExecutionUpdate(Change(status=Status.RUNNING)))
    store.record(waiting, ExecutionUpdate(Change(status=Status.WAITING_FOR_HUMAN_INPUT)))

    assert prune(store, now + 1000 * DAY, TWO) == 0

    assert [one.id for one in store.unfinished()] == [pending, running, waiting]


def test_execution_with_a_waiting_delivery_is_not_pruned(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    end = Change(status=Status.STOPPED, finished_at=now)
    store.record(execution_id, ExecutionUpdate(end, deliveries=[NewDelivery(TARGET, b"{}", now)]))
    assert prune(store, now + 8 * DAY, WEEK) == 0

    store.remove_delivery(store.due_deliveries(now, 1)[0].id)

    assert prune(store, now + 8 * DAY, WEEK) == 1


def test_database_refuses_to_delete_execution_with_a_delivery(
    store: StoreDatabase, create: Create, now: datetime, path: Path
) -> None:
    end = Change(status=Status.STOPPED, finished_at=now)
    store.record(create(), ExecutionUpdate(end, deliveries=[NewDelivery(TARGET, b"{}", now)]))

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("DELETE FROM executions")


def test_pruned_execution_leaves_no_row(
    store: StoreDatabase, new: Callable[..., NewExecution], now: datetime, path: Path
) -> None:
    given = new(webhooks=(TARGET,))
    store.create(given, IdempotencyKey("k", {}))
    change = Change(new_tasks=[TaskRecord("t")] * 250)
    store.record(given.id, ExecutionUpdate(change, [NewEvent("e", now)] * 250))
    store.record(given.id, ExecutionUpdate(Change(status=Status.ERROR, finished_at=now)))

    assert prune(store, now + 8 * DAY, WEEK) == 1

    assert set(rows(path).values()) == {0}


def test_pruning_leaves_other_executions_untouched(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime, path: Path
) -> None:
    kept, forgotten = create(webhooks=(TARGET,)), create()
    for one in (kept, forgotten):
        change = Change(new_tasks=[TaskRecord("t")])
        store.record(one, ExecutionUpdate(change, [NewEvent("e", now)]))
    finish(kept, later=2 * DAY)
    finish(forgotten)
    before = store.execution(kept)

    assert prune(store, now + 8 * DAY, WEEK) == 1

    assert store.execution(kept) == before
    assert len(store.events(kept, 0, 10)) == 1


def test_execution_of_a_valid_key_is_not_pruned(
    store: StoreDatabase, new: Callable[..., NewExecution], finish: Finish, now: datetime
) -> None:
    """Its holder must neither start the same work again nor be given an id that leads nowhere."""
    given = new()
    store.create(given, IdempotencyKey("k", {}))
    finish(given.id)
    hour = Retention(age=timedelta(hours=1), count=10)

    assert prune(store, now + timedelta(hours=23), hour) == 0
    again = store.create(new(created_at=now + timedelta(hours=23)), IdempotencyKey("k", {}))
    assert again.id == given.id
    assert store.execution(given.id) is not None

    assert prune(store, now + timedelta(hours=25), hour) == 1


def test_sequence_number_is_not_used_again(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    """Else the events of one that is still being swept away would be another's."""
    finish(create())
    prune(store, now + 8 * DAY, WEEK)

    execution = store.execution(create())

    assert execution is not None
    assert execution.sequence == 2


@pytest.mark.parametrize("store_limits", [StoreLimits(prune_batch_s=0.0)])
def test_pruning_is_done_in_batches_of_limited_time(
    store: StoreDatabase,
    create: Create,
    finish: Finish,
    path: Path,
    now: datetime,
) -> None:
    ids = [create() for _ in range(3)]
    for execution_id in ids:
        store.record(execution_id, ExecutionUpdate(Change(), [NewEvent("e", now)]))
        finish(execution_id)

    first = store.prune_some(now + 8 * DAY, WEEK, far_keys=False)

    assert (first.executions, first.has_more) == (1, True)
    assert prune(store, now + 8 * DAY, WEEK) == 2
    assert rows(path)["events"] == 0


@pytest.mark.parametrize("store_limits", [StoreLimits(prune_batch_s=0.0)])
async def test_calls_are_answered_between_two_batches(
    journal: Store,
    new: Callable[..., NewExecution],
    now: datetime,
) -> None:
    other, forgotten = new(), new()
    await journal.create(other, idempotency=None)
    await journal.create(forgotten, idempotency=None)
    end = Change(status=Status.STOPPED, finished_at=now)
    await journal.record(forgotten.id, ExecutionUpdate(end, [NewEvent("e", now)] * 30))
    ended: list[str] = []

    async def prune_all() -> None:
        assert await journal.prune(now + 40 * DAY) == 1
        ended.append("pruning")

    async def look() -> None:
        assert await journal.execution(other.id) is not None
        ended.append("looking")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prune_all)
        nursery.start_soon(look)

    assert ended == ["looking", "pruning"]


Open = Callable[..., StoreDatabase]
LARGE = {"x": "y" * 20_000}
KEPT = Retention(age=timedelta(days=7), count=1000)
LATER = timedelta(days=8)


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as other_program:
        (value,) = other_program.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def size(path: Path) -> int:
    """Return the bytes of the file and its log."""
    return path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size


def execution_of(store: StoreDatabase, execution_id: str) -> Execution:
    found = store.execution(execution_id)
    assert found is not None
    return found


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk reports that it has no room."""
    monkeypatch.setattr(store_module, "has_room", lambda _: False)


@pytest.fixture
def emptied(store: StoreDatabase, create: Create, finish: Finish) -> StoreDatabase:
    """A journal that has forgotten nearly all that it had."""
    kept, *forgotten = [create(inputs=LARGE) for _ in range(20)]
    for each in forgotten:
        finish(each)
    now = execution_of(store, kept).created_at
    store.prune_some(now + LATER, KEPT, far_keys=False)
    return store


@pytest.fixture
def before(store: StoreDatabase, create: Create, path: Path) -> list[str]:
    """A file that was made before pages could be given back; the executions in it."""
    ids = [create(inputs=LARGE) for _ in range(5)]
    store.close()
    with closing(sqlite3.connect(path)) as other_program:
        other_program.execute("PRAGMA auto_vacuum = NONE")
        other_program.execute("VACUUM")
    assert pragma(path, "auto_vacuum") == 0
    return ids


@pytest.mark.parametrize("store_limits", [StoreLimits(spare_pages=0)])
def test_free_pages_are_cut_off_the_file(emptied: StoreDatabase, path: Path) -> None:
    before = pragma(path, "page_count")
    free = pragma(path, "freelist_count")
    assert free > 90
    while emptied.release_some_pages():
        pass
    assert pragma(path, "freelist_count") == 0
    assert pragma(path, "page_count") <= before - free
    (kept,) = emptied.unfinished()
    assert execution_of(emptied, kept.id).inputs == LARGE


@pytest.mark.parametrize(
    "store_limits", [StoreLimits(spare_pages=20), StoreLimits(spare_pages=10_000)]
)
def test_spare_pages_stay(emptied: StoreDatabase, path: Path, store_limits: StoreLimits) -> None:
    left = min(store_limits.spare_pages, pragma(path, "freelist_count"))
    while emptied.release_some_pages():
        pass
    assert pragma(path, "freelist_count") == left


def test_spare_pages_are_released_on_a_full_disk(
    emptied: StoreDatabase, path: Path, full_disk: None
) -> None:
    while emptied.release_some_pages():
        pass
    assert pragma(path, "freelist_count") == 0


@pytest.mark.parametrize("store_limits", [StoreLimits(pages_at_once=1)])
def test_pages_are_cut_in_batches(emptied: StoreDatabase, path: Path, full_disk: None) -> None:
    free = pragma(path, "freelist_count")
    batches = 1
    while emptied.release_some_pages():
        batches += 1
    assert pragma(path, "freelist_count") == 0
    assert batches >= free - 1  # the page that lists the free ones goes with another


async def test_pruning_on_a_full_disk_shrinks_file_and_log(
    journal: Store,
    new: Callable[..., NewExecution],
    wall: SimpleNamespace,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The file and its log are shorter then, also where others write at the same time."""
    stays, *go = [new(inputs=LARGE) for _ in range(20)]
    for each in (stays, *go):
        await journal.create(each, idempotency=None)
    for each in go:
        end = Change(status=Status.STOPPED, finished_at=wall.now)
        await journal.record(each.id, ExecutionUpdate(end))
    monkeypatch.setattr(store_module, "has_room", lambda _: False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.prune, wall.now + 5 * LATER)
        for step in range(5):
            nursery.start_soon(journal.record, stays.id, ExecutionUpdate(Change(last_step=step)))
    assert size(path) < 10 * len(str(LARGE))


@pytest.mark.parametrize("store_limits", [StoreLimits(spare_pages=0)])
async def test_file_without_auto_vacuum_is_pruned_and_keeps_its_size(
    before: list[str], path: Path, now: datetime, handle: Store, nursery: trio.Nursery
) -> None:
    await nursery.start(handle.run)
    for each in before:
        end = Change(status=Status.STOPPED, finished_at=now)
        await handle.record(each, ExecutionUpdate(end))

    with trio.fail_after(10):
        assert await handle.prune(now + 5 * LATER) == len(before)

    assert pragma(path, "freelist_count") > 2
    assert pragma(path, "auto_vacuum") == 0
