"""Forgetting: what is old or too many, when it is ended and delivered, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import trio

from smartlinkd.store.actor import CLOCK_SET_WITHIN, Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
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


def test_the_old_are_forgotten_the_young_are_not(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    old, young = create(), create()
    finish(old)
    finish(young, later=DAY)

    assert prune(store, now + 7 * DAY, WEEK) == 0
    assert prune(store, now + 7.5 * DAY, WEEK) == 1

    assert store.execution(old) is None
    assert store.execution(young) is not None


def test_too_many_of_one_crew_are_forgotten_the_oldest_first(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    ids = [create() for _ in range(5)]
    others = [create(crew="another") for _ in range(2)]
    for number, execution_id in enumerate(ids + others):
        finish(execution_id, later=timedelta(minutes=number))

    assert prune(store, now + DAY, TWO) == 3

    assert [one for one in ids if store.execution(one)] == ids[3:]
    assert [one for one in others if store.execution(one)] == others


def test_a_key_of_a_clock_that_was_far_ahead_does_not_outlive_its_day(
    store: StoreDatabase, new: Callable[..., NewExecution], now: datetime
) -> None:
    key = IdempotencyKey("k", {})
    store.create(new(created_at=now + 365 * DAY), key)
    assert prune(store, now, TWO, far_keys=True) == 0
    assert store.create(new(created_at=now), key).is_new


async def test_a_key_outlives_a_clock_that_is_behind_after_a_start(
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


def test_what_ended_by_a_clock_that_was_ahead_takes_nobodys_place(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    ahead, real = [create(), create()], create()
    for execution_id in ahead:
        finish(execution_id, later=DAY)
    finish(real, later=timedelta(minutes=1))

    assert prune(store, now + timedelta(minutes=2), TWO) == 0
    assert prune(store, now + 2 * DAY, TWO) == 1

    assert [each for each in (*ahead, real) if store.execution(each)] == ahead


def test_what_has_not_ended_stays_whatever_its_age(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    pending, running, waiting = create(), create(), create()
    store.record(running, ExecutionUpdate(Change(status=Status.RUNNING)))
    store.record(waiting, ExecutionUpdate(Change(status=Status.WAITING_FOR_HUMAN_INPUT)))

    assert prune(store, now + 1000 * DAY, TWO) == 0

    assert [one.id for one in store.unfinished()] == [pending, running, waiting]


def test_what_is_still_to_be_delivered_stays_until_it_is(
    store: StoreDatabase, create: Create, now: datetime
) -> None:
    execution_id = create()
    end = Change(status=Status.STOPPED, finished_at=now)
    store.record(execution_id, ExecutionUpdate(end, deliveries=[NewDelivery(TARGET, b"{}", now)]))
    assert prune(store, now + 8 * DAY, WEEK) == 0

    store.remove_delivery(store.due_deliveries(now, 1)[0].id)

    assert prune(store, now + 8 * DAY, WEEK) == 1


def test_the_database_itself_refuses_to_forget_one_that_is_to_be_delivered(
    store: StoreDatabase, create: Create, now: datetime, path: Path
) -> None:
    end = Change(status=Status.STOPPED, finished_at=now)
    store.record(create(), ExecutionUpdate(end, deliveries=[NewDelivery(TARGET, b"{}", now)]))

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("DELETE FROM executions")


def test_nothing_is_left_of_what_is_forgotten(
    store: StoreDatabase, new: Callable[..., NewExecution], now: datetime, path: Path
) -> None:
    given = new(webhooks=(TARGET,))
    store.create(given, IdempotencyKey("k", {}))
    change = Change(new_tasks=[TaskRecord("t")] * 250)
    store.record(given.id, ExecutionUpdate(change, [NewEvent("e", now)] * 250))
    store.record(given.id, ExecutionUpdate(Change(status=Status.ERROR, finished_at=now)))

    assert prune(store, now + 8 * DAY, WEEK) == 1

    assert set(rows(path).values()) == {0}


def test_nothing_but_that_is_touched(
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


def test_what_a_key_stands_for_stays_as_long_as_the_key(
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


def test_a_number_is_not_used_again(
    store: StoreDatabase, create: Create, finish: Finish, now: datetime
) -> None:
    """Else the events of one that is still being swept away would be another's."""
    finish(create())
    prune(store, now + 8 * DAY, WEEK)

    execution = store.execution(create())

    assert execution is not None
    assert execution.sequence == 2


@pytest.mark.parametrize("store_limits", [StoreLimits(prune_batch_s=0.0)])
def test_a_batch_ends_in_time_and_the_next_goes_on(
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
async def test_others_are_answered_between_two_batches(
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
