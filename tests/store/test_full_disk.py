"""A full disk: refusals, notices, and pruning that frees space."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import trio

from smartlinkd.logs import LogEvent
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import DiskFull, NoRoomToOpen
from smartlinkd.store.model import Retention, Status
from smartlinkd.store.sqlite import ROOM
from tests.fakes.small_disk import fill, small_disk
from tests.store.calls import KEY, NOW, new, record

WEEK = Retention(age=timedelta(days=7), count=1000)
OLD = 20


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with little space."""
    with small_disk(tmp_path / "small", "24m") as folder:
        yield folder


@pytest.fixture
def path(small: Path) -> Path:
    return small / "journal.db"


@pytest.fixture
def full_store(small: Path, path: Path) -> Iterator[StoreDatabase]:
    """A store with old executions on a disk without a free byte."""
    with closing(StoreDatabase(path, KEY)) as store:
        for _ in range(OLD):
            given = new(inputs={"x": "y" * 20_000})
            store.executions.create(given)
            record(store, given.id, status=Status.STOPPED, finished_at=given.created_at)
        store.checkpoint()
        fill(small / "filler")
        yield store


@pytest.fixture
def filled(small: Path, path: Path) -> Path:
    """The file of a closed store on a disk without a free byte."""
    StoreDatabase(path, KEY).close()
    fill(small / "filler")
    return path


def prune(store: StoreDatabase) -> None:
    while store.prune_some(NOW + timedelta(days=8), WEEK)[1]:
        pass
    while store.release_some_pages():
        pass
    store.checkpoint()


def test_pruning_on_nearly_full_disk_gives_room_back(
    full_store: StoreDatabase, small: Path
) -> None:
    filler = small / "filler"
    os.truncate(filler, filler.stat().st_size - ROOM * 3 // 4)
    with pytest.raises(DiskFull):
        full_store.executions.create(new())

    prune(full_store)

    full_store.executions.create(new())
    assert len(full_store.executions.unfinished()) == 1


def test_pruning_without_a_byte_left_is_refused_and_loses_nothing(
    full_store: StoreDatabase, small: Path
) -> None:
    with pytest.raises(DiskFull):
        prune(full_store)

    (small / "filler").unlink()
    assert len(full_store.executions.page("deal-post", owner="", limit=100).executions) == OLD
    prune(full_store)
    full_store.executions.create(new())


def test_disk_without_inodes_is_a_full_one(filled: Path, small: Path) -> None:
    disk = os.statvfs(small)
    all_in_use = f"remount,nr_inodes={disk.f_files - disk.f_ffree}"
    subprocess.run(["mount", "-o", all_in_use, small], check=True)

    for file in (filled, small / "new.db"):
        with pytest.raises(NoRoomToOpen, match=f"{file}: its disk is full; make room in"):
            StoreDatabase(file, KEY)


async def test_start_on_full_disk_is_reported_in_the_log_alone(
    filled: Path, handle: Store, disk_notices: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    """systemd restarts the daemon every few seconds, and each start would notify the owner."""
    with pytest.raises(NoRoomToOpen, match=f"{filled}: its disk is full; make room in"):
        await handle.run(trio.TASK_STATUS_IGNORED)

    assert disk_notices == []
    assert [getattr(each, "event", None) for each in caplog.records] == [LogEvent.DISK_FULL]
