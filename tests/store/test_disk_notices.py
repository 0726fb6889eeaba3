"""Notices to the owner: one when the disk is full, one when there is space again."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from smartlinkd.logs import LogEvent
from smartlinkd.store import errors
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import DiskFull
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    IdempotencyKey,
    Status,
    StoreLimits,
)
from smartlinkd.store.sqlite import ROOM, has_room
from tests.store.calls import new

PATIENCE = 10.0
QUICK = StoreLimits(disk_look_s=0.01)


class FakeDisk:
    """A disk with a given number of free bytes and inodes."""

    def __init__(self) -> None:
        self.free = ROOM
        self.files = 9  # inodes in all; 0 for a file system without inode counts
        self.inodes = 1  # free inodes

    def statvfs(self, _: Path) -> SimpleNamespace:
        blocks = {"f_blocks": ROOM, "f_bavail": self.free // 512, "f_frsize": 512}
        return SimpleNamespace(**blocks, f_files=self.files, f_favail=self.inodes)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FakeDisk:
    made = FakeDisk()
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


@pytest.fixture
def store_limits() -> StoreLimits:
    return QUICK


async def until(disk_notices: list[bool], count: int) -> None:
    with trio.fail_after(PATIENCE):
        while len(disk_notices) < count:  # noqa: ASYNC110 - a plain list sends no event
            await trio.sleep(0.01)


@pytest.mark.parametrize(("free", "inodes"), [(0, 1), (ROOM - 512, 1), (ROOM, 0)])
async def test_create_is_refused_on_a_nearly_full_disk_which_is_reported_once(
    *,
    journal: Store,
    disk: FakeDisk,
    disk_notices: list[bool],
    caplog: pytest.LogCaptureFixture,
    free: int,
    inodes: int,
) -> None:
    key = IdempotencyKey("k", {"a": 1})
    earlier = await journal.create(new(), idempotency=key)
    disk.free, disk.inodes = free, inodes
    for _ in range(5):
        with pytest.raises(DiskFull, match="its disk is full; nothing was changed"):
            await journal.create(new(), idempotency=None)
    await trio.sleep(0.1)
    assert disk_notices == [True]
    events = [record.event for record in caplog.records if hasattr(record, "event")]
    assert events == [LogEvent.DISK_FULL]
    assert [each.id for each in await journal.unfinished()] == [earlier]
    assert await journal.create(new(), idempotency=key) == earlier


async def test_end_of_an_execution_alone_is_recorded_on_a_nearly_full_disk(
    journal: Store, disk: FakeDisk, disk_notices: list[bool]
) -> None:
    """The last room is for the deletion of old ones."""
    waiting = await journal.create(new(), idempotency=None)
    disk.free = ROOM - 512
    begins = Change(status=Status.RUNNING, started_at=new().created_at)
    for change in (begins, Change(current_task="a")):
        with pytest.raises(DiskFull):
            await journal.record(waiting, ExecutionUpdate(change))
    assert disk_notices == [True]
    assert [each.status for each in await journal.unfinished()] == [Status.PENDING]
    ends = Change(status=Status.STOPPED, finished_at=new().created_at)
    await journal.record(waiting, ExecutionUpdate(ends))
    assert await journal.unfinished() == []


@pytest.mark.parametrize("store_limits", [replace(QUICK, prune_every_s=0.01)])
async def test_disk_is_reported_without_any_call(
    journal: Store, disk: FakeDisk, disk_notices: list[bool]
) -> None:
    disk.free = 0
    await until(disk_notices, 1)
    disk.free = ROOM
    await until(disk_notices, 2)
    assert disk_notices[:2] == [True, False]


def test_disk_without_inode_counts_has_room(disk: FakeDisk, tmp_path: Path) -> None:
    disk.inodes = 0
    assert not has_room(tmp_path)
    disk.files = 0
    assert has_room(tmp_path)


async def test_old_executions_are_pruned_at_once_on_a_full_disk(
    journal: Store, disk: FakeDisk, wall: SimpleNamespace, disk_notices: list[bool]
) -> None:
    """Pruning frees space before its next round."""
    old = await journal.create(new(), idempotency=None)
    end = Change(status=Status.STOPPED, finished_at=wall.now)
    await journal.record(old, ExecutionUpdate(end))
    wall.now += timedelta(days=31)
    disk.free = 0
    with pytest.raises(DiskFull):
        await journal.create(new(), idempotency=None)
    with trio.fail_after(PATIENCE):
        while (await journal.executions("deal-post", limit=1)).executions:
            pass  # each call takes real time on a thread
    assert disk_notices == [True]


async def test_free_space_that_cannot_be_written_to_is_not_reported(
    journal: Store,
    disk: FakeDisk,
    disk_notices: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: StoreDatabase) -> bool:
        raise DiskFull("no", retry_after=1)

    disk.free = 0
    with monkeypatch.context() as patch:
        patch.setattr(StoreDatabase, "has_room", refuse)
        with pytest.raises(DiskFull):
            await journal.create(new(), idempotency=None)
        disk.free = ROOM
        await trio.sleep(0.2)
        assert disk_notices == [True]
    await until(disk_notices, 2)


def test_io_error_on_a_full_disk_is_disk_full(path: Path, disk: FakeDisk) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 19 << 8  # SQLITE_IOERR_SHMSIZE
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    disk.free = 0
    assert isinstance(errors.translate(error, path), DiskFull)
    disk.free = ROOM
    translated = errors.translate(error, path)
    assert translated is not None
    assert not isinstance(translated, DiskFull)
