"""A disk without a byte left: what is forgotten makes room even there, by what is kept for that."""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from pydantic import SecretBytes
from trio.testing import MockClock

from smartlinkd.logs import LogEvent
from smartlinkd.store import actor as actor_module
from smartlinkd.store import database as store_module
from smartlinkd.store import retention
from smartlinkd.store.actor import Journal
from smartlinkd.store.database import Store
from smartlinkd.store.disk import LOOK_EVERY, ROOM
from smartlinkd.store.errors import DiskFull, NoRoomToOpen
from smartlinkd.store.model import Change, Entry, NewExecution, Retention, Status
from smartlinkd.store.reserve import SIZE, Reserve
from smartlinkd.store.schema import open_database
from tests.fakes.small_disk import fill, small_disk

pytestmark = pytest.mark.usefixtures("quick_disk")

New = Callable[..., NewExecution]

KEY = SecretBytes(b"k" * 32)
WEEK = Retention(age=timedelta(days=7), count=1000)
SMALL = 24  # MiB
SHARE = SMALL * 1024 * 1024 // 16


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with little room."""
    with small_disk(tmp_path / "small", f"{SMALL}m") as folder:
        yield folder


@pytest.fixture
def crowded(small: Path, new: New) -> Iterator[Store]:
    """A journal on a disk without a byte left. All of it is old, and in the log still."""
    with closing(open_store(small / "journal.db")) as store:
        store.end_round()
        for _ in range(20):
            given = new(inputs={"x": "y" * 20_000})
            store.create(given, None)
            end = Change(status=Status.STOPPED, finished_at=given.created_at)
            store.record(given.id, Entry(end))
        fill(small / "filler")
        yield store


@pytest.fixture
def reserve(tmp_path: Path) -> Path:
    """Where that of a journal `tmp_path / "j"` is."""
    return tmp_path / "j.reserve"


def open_store(path: Path) -> Store:
    return Store(path, KEY)


def bytes_of(path: Path) -> int:
    """Those that its removal gives back."""
    return path.stat().st_blocks * 512


def forget(store: Store, new: New) -> None:
    now = new().created_at + timedelta(days=8)
    mark: retention.Mark | None = retention.START
    while mark is not None:
        mark = store.prune_some(now, WEEK, mark, far_keys=False).mark
    while store.give_back_some():
        pass
    store.end_round()


def test_what_is_forgotten_makes_room(crowded: Store, small: Path, new: New) -> None:
    with pytest.raises(DiskFull):
        crowded.create(new(), None)
    forget(crowded, new)
    assert crowded.create(new(), None).is_new
    assert len(crowded.unfinished()) == 1
    assert bytes_of(small / "journal.db.reserve") == SHARE


def test_without_a_reserve_it_is_refused_and_nothing_is_lost(
    crowded: Store, small: Path, new: New
) -> None:
    (small / "journal.db.reserve").unlink()
    fill(small / "filler")
    with pytest.raises(DiskFull):
        forget(crowded, new)
    (small / "filler").unlink()
    assert len(crowded.executions("deal-post", "", None, 100, None).executions) == 20
    forget(crowded, new)
    assert bytes_of(small / "journal.db.reserve") == SHARE


@pytest.fixture
def ended(small: Path) -> Path:
    """The file of a journal that has come to an orderly end, on a disk without a byte left."""
    path = small / "journal.db"
    with closing(open_store(path)) as store:
        store.end_round()
    fill(small / "filler")
    return path


def test_it_is_made_again_also_when_what_it_was_lent_for_fails(small: Path) -> None:
    reserve, file = Reserve(small / "j"), small / "j.reserve"
    reserve.keep()

    def fail() -> None:
        with reserve.lent():
            assert not file.exists()
            raise DiskFull("its disk is full", retry_after=1)

    with pytest.raises(DiskFull):
        fail()
    assert bytes_of(file) == SHARE


def test_by_it_a_journal_is_opened(ended: Path) -> None:
    with closing(open_store(ended)) as store:
        assert store.unfinished() == []
        assert bytes_of(ended.with_name("journal.db.reserve")) > SHARE // 2


def test_where_there_is_none_it_is_the_disk_that_is_full(ended: Path, small: Path) -> None:
    ended.with_name("journal.db.reserve").unlink()
    fill(small / "filler")
    with pytest.raises(NoRoomToOpen, match=f"{ended}: its disk is full; make room in"):
        open_store(ended)
    (small / "filler").unlink()
    open_store(ended).close()


@pytest.fixture
def filled(ended: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same where there is no reserve either."""
    ended.with_name("journal.db.reserve").unlink()
    fill(small / "filler")
    monkeypatch.setattr(actor_module, "LOOK_EVERY", 0.01)
    return ended


@pytest.fixture
def told() -> list[bool]:
    return []


@pytest.fixture
def unopened(filled: Path, told: list[bool]) -> Journal:
    return Journal(filled, key=KEY, retention=WEEK, disk_full=told.append)


async def test_a_start_that_fails_for_it_is_told_in_the_log_alone(
    unopened: Journal,
    told: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The daemon is started again every few seconds then."""
    monkeypatch.setattr(actor_module, "ROOM_WITHIN", 0.05)
    with pytest.raises(NoRoomToOpen):
        await unopened.run(trio.TASK_STATUS_IGNORED)
    assert told == []
    assert [getattr(each, "event", None) for each in caplog.records] == [LogEvent.DISK_FULL]


async def test_a_start_waits_for_room_no_longer_than_it_may(
    handle: Journal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor gives it twice as long, for all that it does."""

    def full(*_: object) -> Store:
        raise NoRoomToOpen("its disk is full")

    monkeypatch.setattr(actor_module, "Store", full)
    began = trio.current_time()
    with pytest.raises(NoRoomToOpen):
        await handle.run(trio.TASK_STATUS_IGNORED)
    waited = trio.current_time() - began
    assert LOOK_EVERY <= waited <= actor_module.ROOM_WITHIN


async def test_a_start_waits_for_room(
    unopened: Journal,
    filled: Path,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = []

    def failing(path: Path) -> sqlite3.Connection:
        tried.append(path)
        if len(tried) > 4:
            filled.with_name("filler").unlink(missing_ok=True)
        return open_database(path)

    monkeypatch.setattr(store_module, "open_database", failing)
    with trio.fail_after(10):
        await nursery.start(unopened.run)
        assert await unopened.unfinished() == []
    events = [getattr(each, "event", None) for each in caplog.records]
    assert [each for each in events if each] == [LogEvent.DISK_FULL, LogEvent.DISK_HAS_ROOM]


async def test_a_restart_that_fails_for_it_is_told(
    unopened: Journal, filled: Path, small: Path, told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    (small / "filler").unlink()
    async with trio.open_nursery() as nursery:
        await nursery.start(unopened.run)
        nursery.cancel_scope.cancel()
    filled.with_name("journal.db.reserve").unlink(missing_ok=True)
    fill(small / "filler")
    monkeypatch.setattr(actor_module, "ROOM_WITHIN", 0.05)
    with pytest.raises(NoRoomToOpen):
        await unopened.run(trio.TASK_STATUS_IGNORED)
    assert told == [True]


async def test_a_restart_that_waits_for_room_tells_of_it_once(
    filled: Path,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[bool] = []
    has_room = trio.Event()
    tried: list[Path] = []

    def tell(full: bool) -> None:
        told.append(full)
        if not full:
            has_room.set()

    def failing(path: Path) -> sqlite3.Connection:
        tried.append(path)
        if len(tried) > 4:
            filled.with_name("filler").unlink(missing_ok=True)
        return open_database(path)

    filled.with_name("filler").unlink()
    journal = Journal(filled, key=KEY, retention=WEEK, disk_full=tell)
    async with trio.open_nursery() as first:
        await first.start(journal.run)
        first.cancel_scope.cancel()
    filled.with_name("journal.db.reserve").unlink(missing_ok=True)
    fill(filled.with_name("filler"))
    monkeypatch.setattr(store_module, "open_database", failing)
    with trio.fail_after(10):
        await nursery.start(journal.run)
        await has_room.wait()
    assert told == [True, False]
    events = [getattr(each, "event", None) for each in caplog.records]
    assert [each for each in events if each] == [LogEvent.DISK_FULL, LogEvent.DISK_HAS_ROOM]


def test_what_others_take_meanwhile_it_lacks_until_there_is_room(small: Path) -> None:
    reserve, file = Reserve(small / "j"), small / "j.reserve"
    reserve.keep()
    fill(small / "filler")
    with reserve.lent():
        (small / "theirs").write_bytes(bytes(SHARE // 2))
    assert bytes_of(file) == SHARE // 2
    with reserve.lent():
        fill(small / "filler")
    assert not file.exists()
    (small / "theirs").write_bytes(bytes(4096))
    reserve.keep()
    assert not file.exists()  # the room that is needed for new executions comes first
    (small / "filler").unlink()
    reserve.keep()
    assert bytes_of(file) == SHARE


def test_it_is_real_and_its_owners_only(tmp_path: Path, reserve: Path) -> None:
    Reserve(tmp_path / "j").keep()
    assert bytes_of(reserve) == reserve.stat().st_size == SIZE
    assert stat.S_IMODE(reserve.stat().st_mode) == 0o600


def test_one_with_a_hole_is_filled(tmp_path: Path, reserve: Path) -> None:
    """As a copy may be, that was put back."""
    reserve.touch()
    os.truncate(reserve, SIZE)
    Reserve(tmp_path / "j").keep()
    assert bytes_of(reserve) == SIZE


@pytest.mark.parametrize(
    ("beyond", "size"), [(0, 0), (3 * 4096, 2 * 4096), (SIZE * 3 // 2, SIZE), (2 * SIZE, SIZE)]
)
def test_it_leaves_room_beside_it(
    beyond: int, size: int, tmp_path: Path, reserve: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_blocks=SIZE, f_bavail=(ROOM + beyond) // 512, f_frsize=512)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    Reserve(tmp_path / "j").keep()
    assert (reserve.stat().st_size if reserve.exists() else 0) == size


def test_a_disk_without_inodes_is_a_full_one(ended: Path, small: Path) -> None:
    """What is made beside it to open it cannot be made."""
    ended.with_name("journal.db.reserve").unlink()
    disk = os.statvfs(small)
    all_in_use = f"remount,nr_inodes={disk.f_files - disk.f_ffree}"
    subprocess.run(["mount", "-o", all_in_use, small], check=True)
    with pytest.raises(NoRoomToOpen):
        open_store(ended)


def test_what_has_room_takes_more_than_the_looking(small: Path, new: New) -> None:
    """The log is made of what else might be the reserve's."""
    with closing(open_store(small / "journal.db")) as store:
        fill(small / "filler")
        os.truncate(small / "filler", (small / "filler").stat().st_size - ROOM - SHARE // 2)
        store.end_round()
        assert store.has_room()
        for _ in range(2):
            assert store.create(new(), None).is_new


def test_there_is_room_only_if_there_is_when_it_was_looked_for(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_store(small / "journal.db")) as store:
        monkeypatch.setattr(Reserve, "keep", lambda _: fill(small / "filler"))
        assert not store.has_room()


def test_a_link_in_its_place_is_not_followed(
    tmp_path: Path, reserve: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    victim = tmp_path / "theirs"
    victim.touch()
    reserve.symlink_to(victim)
    Reserve(tmp_path / "j").keep()
    assert victim.stat().st_size == 0
    assert f"{reserve} is not whole" in caplog.text


def test_where_it_cannot_be_removed_all_goes_on(
    tmp_path: Path, reserve: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reserve.mkdir()
    done = []
    with Reserve(tmp_path / "j").lent():
        done.append(1)
    assert done
    assert f"{reserve} cannot be removed" in caplog.text


async def test_it_is_made_when_a_round_is_over(journal: Journal, new: New, path: Path) -> None:
    await journal.prune(new().created_at)
    reserve = path.with_name(f"{path.name}.reserve")
    assert bytes_of(reserve) == SIZE
