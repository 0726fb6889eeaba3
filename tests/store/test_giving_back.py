"""What is forgotten becomes free in the file, and what is free there the disk is given back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from smartlinkd.store import database as store_module
from smartlinkd.store import retention, schema
from smartlinkd.store.actor import Journal
from smartlinkd.store.database import Store
from smartlinkd.store.model import Change, Entry, Execution, NewExecution, Retention, Status

pytestmark = pytest.mark.usefixtures("quick_disk")

Create = Callable[..., str]
Finish = Callable[..., None]
Open = Callable[..., Store]

LARGE = {"x": "y" * 20_000}
KEPT = Retention(age=timedelta(days=7), count=1000)
LATER = timedelta(days=8)


def pragma(path: Path, name: str) -> int:
    with closing(sqlite3.connect(path)) as other_program:
        (value,) = other_program.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def size(path: Path) -> int:
    """Of the file and its log."""
    return path.stat().st_size + path.with_name(f"{path.name}-wal").stat().st_size


def execution_of(store: Store, execution_id: str) -> Execution:
    found = store.execution(execution_id)
    assert found is not None
    return found


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without room, as it says."""
    monkeypatch.setattr(store_module, "has_room", lambda _: False)


@pytest.fixture
def emptied(store: Store, create: Create, finish: Finish) -> Store:
    """A journal that has forgotten nearly all that it had."""
    kept, *forgotten = [create(inputs=LARGE) for _ in range(20)]
    for each in forgotten:
        finish(each)
    now = execution_of(store, kept).created_at
    store.prune_some(now + LATER, KEPT, retention.START, far_keys=False)
    return store


@pytest.fixture
def before(store: Store, create: Create, path: Path) -> list[str]:
    """A file that was made before pages could be given back; the executions in it."""
    ids = [create(inputs=LARGE) for _ in range(5)]
    store.close()
    with closing(sqlite3.connect(path)) as other_program:
        other_program.execute("PRAGMA auto_vacuum = NONE")
        other_program.execute("VACUUM")
    assert pragma(path, "auto_vacuum") == 0
    return ids


def test_free_pages_are_given_back(
    emptied: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "SPARE_PAGES", 0)
    before = pragma(path, "page_count")
    free = pragma(path, "freelist_count")
    assert free > 90
    while emptied.give_back_some():
        pass
    assert pragma(path, "freelist_count") == 0
    assert pragma(path, "page_count") <= before - free
    (kept,) = emptied.unfinished()
    assert execution_of(emptied, kept.id).inputs == LARGE


@pytest.mark.parametrize("spare", [20, 10_000])
def test_some_stay_for_what_comes_next(
    emptied: Store, path: Path, monkeypatch: pytest.MonkeyPatch, spare: int
) -> None:
    monkeypatch.setattr(retention, "SPARE_PAGES", spare)
    left = min(spare, pragma(path, "freelist_count"))
    while emptied.give_back_some():
        pass
    assert pragma(path, "freelist_count") == left


def test_none_stays_where_the_disk_is_full(emptied: Store, path: Path, full_disk: None) -> None:
    while emptied.give_back_some():
        pass
    assert pragma(path, "freelist_count") == 0


def test_a_batch_ends_in_time_and_the_next_goes_on(
    emptied: Store, path: Path, full_disk: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_SECONDS", 0.0)
    free = pragma(path, "freelist_count")
    batches = 1
    while emptied.give_back_some():
        batches += 1
    assert pragma(path, "freelist_count") == 0
    assert batches >= free - 1  # what lists the free pages is one itself, and goes with another


async def test_a_full_disk_has_them_when_the_round_is_over(
    journal: Journal,
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
        await journal.record(each.id, Entry(end))
    monkeypatch.setattr(store_module, "has_room", lambda _: False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(journal.prune, wall.now + 5 * LATER)
        for step in range(5):
            nursery.start_soon(journal.record, stays.id, Entry(Change(last_step=step)))
    assert size(path) < 10 * len(str(LARGE))


def test_a_file_of_before_is_written_anew_once(
    before: list[str], open_store: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        with closing(open_store()) as store:
            assert [each.id for each in store.unfinished()] == before
            assert [execution_of(store, each).inputs for each in before] == [LARGE] * 5
    assert pragma(path, "auto_vacuum") == 2
    assert caplog.records == []


def test_a_large_one_is_left_as_it_is(
    before: list[str], open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "LARGEST_REWRITTEN", path.stat().st_size - 1)
    stays_as_it_is(open_store, path, before)


@pytest.fixture
def emptied_before(
    before: list[str],
    open_store: Open,
    path: Path,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """One that is left as it is, and has ended executions alone."""
    monkeypatch.setattr(schema, "LARGEST_REWRITTEN", 0)
    monkeypatch.setattr(retention, "SPARE_PAGES", 0)
    monkeypatch.setattr(retention, "BATCH_SECONDS", 0.0)
    with closing(open_store()) as store:
        for each in before:
            store.record(each, Entry(Change(status=Status.STOPPED, finished_at=now)))
    return path


def test_from_one_of_before_nothing_is_given_back_however_much_is_free(
    emptied_before: Path, now: datetime, open_store: Open
) -> None:
    store = open_store()
    mark: retention.Mark | None = retention.START
    while mark is not None:
        mark = store.prune_some(now + LATER, KEPT, mark, far_keys=False).mark
    assert pragma(emptied_before, "freelist_count") > 2
    assert not store.give_back_some()


async def test_a_round_ends_also_there(
    emptied_before: Path, now: datetime, handle: Journal, nursery: trio.Nursery
) -> None:
    await nursery.start(handle.run)
    with trio.fail_after(10):
        await handle.prune(now + 5 * LATER)
    assert pragma(emptied_before, "freelist_count") > 2


def test_one_that_the_disk_cannot_hold_twice_more_is_left_as_it_is(
    before: list[str], open_store: Open, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def no_room(folder: Path, beyond: int) -> bool:
        asked.append((folder, beyond))
        return False

    monkeypatch.setattr(schema, "has_room", no_room)
    stays_as_it_is(open_store, path, before)
    assert asked == [(path.parent, 2 * path.stat().st_size)]


def test_one_that_cannot_be_written_anew_is_used_as_it_is(
    before: list[str],
    open_store: Open,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refusing(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            if sql == "VACUUM":
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, parameters)

    def connect(*args: Any, **more: Any) -> sqlite3.Connection:
        return sqlite3.connect(*args, factory=Refusing, **more)

    played = SimpleNamespace(**{**vars(sqlite3), "connect": connect})
    monkeypatch.setattr(schema, "sqlite3", played)
    stays_as_it_is(open_store, path, before)
    assert f"{path} keeps its size for now" in caplog.text


def stays_as_it_is(open_store: Open, path: Path, ids: list[str]) -> None:
    """It is usable, and what is free in it, it keeps."""
    with closing(open_store()) as store:
        assert [each.id for each in store.unfinished()] == ids
        assert not store.give_back_some()
    assert pragma(path, "auto_vacuum") == 0
