"""Forgetting: what is old or too many, when it is ended and delivered, and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.store import retention
from smartlinkd.store.actor import CLOCK_SET_WITHIN, Journal
from smartlinkd.store.database import Store
from smartlinkd.store.model import (
    Change,
    Entry,
    IdempotencyKey,
    NewDelivery,
    NewEvent,
    NewExecution,
    Retention,
    Status,
    TaskRecord,
    WebhookTarget,
)

pytestmark = pytest.mark.usefixtures("quick_disk")

Create = Callable[..., str]
Finish = Callable[..., None]

WEEK = Retention(age=timedelta(days=7), count=1000)
TWO = Retention(age=timedelta(days=7), count=2)
DAY = timedelta(days=1)
TARGET = WebhookTarget("crew", "https://a.example")


def prune(store: Store, now: datetime, kept: Retention, *, far_keys: bool = False) -> int:
    """A whole round."""
    forgotten = 0
    mark: retention.Mark | None = retention.START
    while mark is not None:
        batch = store.prune_some(now, kept, mark, far_keys=far_keys)
        forgotten, mark = forgotten + batch.forgotten, batch.mark
    return forgotten


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
    store: Store, create: Create, finish: Finish, now: datetime
) -> None:
    old, young = create(), create()
    finish(old)
    finish(young, later=DAY)

    assert prune(store, now + 7 * DAY, WEEK) == 0
    assert prune(store, now + 7.5 * DAY, WEEK) == 1

    assert store.execution(old) is None
    assert store.execution(young) is not None


def test_too_many_of_one_crew_are_forgotten_the_oldest_first(
    store: Store, create: Create, finish: Finish, now: datetime
) -> None:
    ids = [create() for _ in range(5)]
    others = [create(crew="another") for _ in range(2)]
    for number, execution_id in enumerate(ids + others):
        finish(execution_id, later=timedelta(minutes=number))

    assert prune(store, now + DAY, TWO) == 3

    assert [one for one in ids if store.execution(one)] == ids[3:]
    assert [one for one in others if store.execution(one)] == others


def test_a_key_of_a_clock_that_was_far_ahead_does_not_outlive_its_day(
    store: Store, new: Callable[..., NewExecution], now: datetime
) -> None:
    key = IdempotencyKey("k", {})
    store.create(new(created_at=now + 365 * DAY), key)
    assert prune(store, now, TWO, far_keys=True) == 0
    assert store.create(new(created_at=now), key).is_new


async def test_a_key_outlives_a_clock_that_is_behind_after_a_start(
    journal: Journal,
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
    store: Store, create: Create, finish: Finish, now: datetime
) -> None:
    ahead, real = [create(), create()], create()
    for execution_id in ahead:
        finish(execution_id, later=DAY)
    finish(real, later=timedelta(minutes=1))

    assert prune(store, now + timedelta(minutes=2), TWO) == 0
    assert prune(store, now + 2 * DAY, TWO) == 1

    assert [each for each in (*ahead, real) if store.execution(each)] == ahead


def test_what_has_not_ended_stays_whatever_its_age(
    store: Store, create: Create, now: datetime
) -> None:
    pending, running, waiting = create(), create(), create()
    store.record(running, Entry(Change(status=Status.RUNNING)))
    store.record(waiting, Entry(Change(status=Status.WAITING_FOR_HUMAN_INPUT)))

    assert prune(store, now + 1000 * DAY, TWO) == 0

    assert [one.id for one in store.unfinished()] == [pending, running, waiting]


def test_what_is_still_to_be_delivered_stays_until_it_is(
    store: Store, create: Create, now: datetime
) -> None:
    execution_id = create()
    end = Change(status=Status.STOPPED, finished_at=now)
    store.record(execution_id, Entry(end, deliveries=[NewDelivery(TARGET, b"{}", now)]))
    assert prune(store, now + 8 * DAY, WEEK) == 0

    store.done(store.due_deliveries(now, 1)[0].id)

    assert prune(store, now + 8 * DAY, WEEK) == 1


def test_the_database_itself_refuses_to_forget_one_that_is_to_be_delivered(
    store: Store, create: Create, now: datetime, path: Path
) -> None:
    end = Change(status=Status.STOPPED, finished_at=now)
    store.record(create(), Entry(end, deliveries=[NewDelivery(TARGET, b"{}", now)]))

    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute("DELETE FROM executions")


def test_nothing_is_left_of_what_is_forgotten(
    store: Store, new: Callable[..., NewExecution], now: datetime, path: Path
) -> None:
    given = new(webhooks=(TARGET,))
    store.create(given, IdempotencyKey("k", {}))
    change = Change(new_tasks=[TaskRecord("t")] * 250)
    store.record(given.id, Entry(change, [NewEvent("e", now)] * 250))
    store.record(given.id, Entry(Change(status=Status.ERROR, finished_at=now)))

    assert prune(store, now + 8 * DAY, WEEK) == 1

    assert set(rows(path).values()) == {0}


def test_nothing_but_that_is_touched(
    store: Store, create: Create, finish: Finish, now: datetime, path: Path
) -> None:
    kept, forgotten = create(webhooks=(TARGET,)), create()
    for one in (kept, forgotten):
        change = Change(new_tasks=[TaskRecord("t")])
        store.record(one, Entry(change, [NewEvent("e", now)]))
    finish(kept, later=2 * DAY)
    finish(forgotten)
    before = store.execution(kept)

    assert prune(store, now + 8 * DAY, WEEK) == 1

    assert store.execution(kept) == before
    assert len(store.events(kept, 0, 10)) == 1


def test_what_a_key_stands_for_stays_as_long_as_the_key(
    store: Store, new: Callable[..., NewExecution], finish: Finish, now: datetime
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
    store: Store, create: Create, finish: Finish, now: datetime
) -> None:
    """Else the events of one that is still being swept away would be another's."""
    finish(create())
    prune(store, now + 8 * DAY, WEEK)

    execution = store.execution(create())

    assert execution is not None
    assert execution.sequence == 2


def test_a_batch_ends_in_time_and_the_next_goes_on(  # noqa: PLR0917 - fixtures
    store: Store,
    create: Create,
    finish: Finish,
    path: Path,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "BATCH_SECONDS", 0.0)
    ids = [create() for _ in range(3)]
    for execution_id in ids:
        store.record(execution_id, Entry(Change(), [NewEvent("e", now)]))
        finish(execution_id)

    first = store.prune_some(now + 8 * DAY, WEEK, retention.START, far_keys=False)

    assert first.forgotten == 1
    assert first.mark not in (None, retention.START)
    assert prune(store, now + 8 * DAY, WEEK) == 2
    assert rows(path)["events"] == 0


def test_what_is_needed_is_looked_at_once_in_a_round(  # noqa: PLR0917 - fixtures
    store: Store,
    new: Callable[..., NewExecution],
    create: Create,
    finish: Finish,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many batches that takes, and however many of it there are."""
    monkeypatch.setattr(retention, "BATCH_SECONDS", 0.0)
    for number in range(20):
        execution = new(crew="other" if number % 2 else "deal-post")
        store.create(execution, IdempotencyKey(str(number), {}))
        finish(execution.id)
    gone = create()
    store.record(gone, Entry(Change(), [NewEvent("e", now)] * 50))
    finish(gone)
    looks, look = [], retention._executions

    def counted(*args: Any) -> Iterator[tuple[int, retention.Mark]]:
        for found, mark in look(*args):
            looks.append(mark.sequence)
            yield found, mark

    monkeypatch.setattr(retention, "_executions", counted)
    nothing = Retention(age=timedelta(0), count=1000)
    assert prune(store, now + timedelta(hours=1), nothing) == 1
    assert sorted(looks) == list(range(1, 22))


async def test_others_are_answered_between_two_batches(
    journal: Journal,
    new: Callable[..., NewExecution],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "BATCH_SECONDS", 0.0)
    other, forgotten = new(), new()
    await journal.create(other, idempotency=None)
    await journal.create(forgotten, idempotency=None)
    end = Change(status=Status.STOPPED, finished_at=now)
    await journal.record(forgotten.id, Entry(end, [NewEvent("e", now)] * 30))
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
