"""Pruning frees pages of the file, and these are cut off it."""

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
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import (
    Change,
    Execution,
    ExecutionUpdate,
    NewExecution,
    Retention,
    Status,
    StoreLimits,
)

Create = Callable[..., str]
Finish = Callable[..., None]
Open = Callable[..., StoreDatabase]

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


def execution_of(store: StoreDatabase, execution_id: str) -> Execution:
    found = store.execution(execution_id)
    assert found is not None
    return found


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without room, as it says."""
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


def test_no_spare_pages_stay_on_a_full_disk(
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


async def test_a_full_disk_has_them_when_the_round_is_over(
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
