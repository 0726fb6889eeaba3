"""The file: created, opened again, damaged, and upgraded from version 1."""

from __future__ import annotations

import os
import sqlite3
import stat
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import trio

from smartlinkd.errors import Invalid
from smartlinkd.store.actor import Store
from smartlinkd.store.codec import micros
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import NoRoomToOpen, UnusableStore
from smartlinkd.store.file import open_file
from smartlinkd.store.model import NewDelivery, StoreLimits
from smartlinkd.store.schema import SCHEMA
from smartlinkd.store.sqlite import NewerFile, copy_of, open_database
from tests.fakes.small_disk import fill, small_disk
from tests.store.calls import (
    CREW,
    KEY,
    NOW,
    SECOND,
    TASK,
    bodies,
    create,
    events,
    new,
    queue,
    unfinished,
)
from tests.store.test_actor import open_files
from tests.store.version_1 import FAILED_DELIVERIES, FIRST_DELIVERIES, OWED_BYTES

Open = Callable[..., StoreDatabase]


def test_new_file_is_private(store: StoreDatabase, path: Path) -> None:
    create(store)

    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_half_created_file_is_completed(path: Path, open_store: Open) -> None:
    path.touch()

    open_store().executions.create(new())


def test_newer_file_is_refused_and_untouched(
    store: StoreDatabase, path: Path, open_store: Open
) -> None:
    create(store)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    before = path.read_bytes()

    with pytest.raises(UnusableStore, match=f"{path} was written by a newer .*version 3"):
        open_store()

    assert path.read_bytes() == before


def test_file_that_is_no_database_is_refused_by_name(path: Path, open_store: Open) -> None:
    path.write_bytes(b"not a database " * 1000)

    # The exception keeps references to everything that was open.
    with pytest.raises(UnusableStore, match=rf"{path} is damaged .*put back a backup") as raised:
        open_store()
    assert open_files(path) == []
    assert raised.tb


def test_damage_met_later_names_the_file(
    store: StoreDatabase, path: Path, open_store: Open
) -> None:
    given = new(inputs={"x": "y" * 50_000})
    store.executions.create(given)
    store.close()
    path.write_bytes(path.read_bytes().replace(b"y" * 500, b"y" * 499 + b"\xff"))

    with pytest.raises(UnusableStore, match=rf"{path} is damaged .*\.dump") as raised:
        open_store().executions.read(given.id)
    assert "yyy" not in "".join(traceback.format_exception(raised.value))


def test_damaged_page_names_the_file(store: StoreDatabase, path: Path, open_store: Open) -> None:
    for _ in range(200):
        execution_id = create(store)
    store.close()
    content = path.read_bytes()
    page = content.index(execution_id.encode()) // 4096 * 4096
    with path.open("r+b") as file:
        file.seek(page)
        file.write(b"\xee" * 4096)

    with pytest.raises(UnusableStore, match=f"{path} is damaged"):
        open_store().executions.read(execution_id)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "journal.db"

    with pytest.raises(UnusableStore, match=rf"{path} cannot be used .*its folder"):
        open_file(path)


def test_file_locked_by_another_program_is_refused(
    store: StoreDatabase, path: Path, open_store: Open
) -> None:
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnusableStore, match=rf"{path}: another program .*end that program"):
            open_store(limits=StoreLimits(busy_timeout_s=0.0))


VERSION_1 = replace(SCHEMA, migrations=SCHEMA.migrations[:1])

INSTALLED: dict[str, Sequence[str]] = {
    "plain": (),
    "first": FIRST_DELIVERIES,
    "failed": (*FIRST_DELIVERIES, *FAILED_DELIVERIES),
    "last": (*FIRST_DELIVERIES, *FAILED_DELIVERIES, *OWED_BYTES),
}

ID = "3d5e8e64-8b71-4c41-a2a3-0a0d9b5a0c11"


def make_version_1(path: Path, added: Sequence[str]) -> None:
    """Make a file with an execution and four webhook calls, the first of which has failed."""
    with closing(open_database(path, VERSION_1)) as connection:
        for statement in added:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO executions (id, crew, owner, state, status, created_at, last_event) "
            "VALUES (?, 'deal-post', '', 'PENDING', 'pending', ?, 1)",
            (ID, micros(NOW)),
        )
        connection.execute("INSERT INTO kickoffs VALUES (1, '{}', NULL)")
        connection.execute("INSERT INTO events VALUES (1, 1, ?, 'queued', NULL)", (micros(NOW),))
        for number, target in enumerate((TASK, CREW), 1):
            connection.execute(
                "INSERT INTO webhooks VALUES (?, 1, 1, ?, ?, '[]', NULL)",
                (number, target.kind, target.url),
            )
        for webhook, body in ((1, b"done"), (1, b"failed"), (1, b"behind it"), (2, b"at once")):
            connection.execute(
                "INSERT INTO deliveries (execution, webhook, next_at, body) VALUES (1, ?, ?, ?)",
                (webhook, micros(NOW), body),
            )
        connection.execute("DELETE FROM deliveries WHERE number = 1")
        connection.execute(
            "UPDATE deliveries SET next_at = ?, attempts = 1 WHERE number = 2",
            (micros(NOW + 2 * SECOND),),
        )


@pytest.fixture(params=INSTALLED)
def installed(request: pytest.FixtureRequest, path: Path) -> None:
    """A file that a daemon of version 1 has left."""
    make_version_1(path, INSTALLED[request.param])


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("store_limits", [StoreLimits(pending_bytes=25)])
def test_executions_events_and_deliveries_of_version_1_are_read_and_count(
    open_store: Callable[..., StoreDatabase],
) -> None:
    store = open_store()

    assert unfinished(store) == [ID]
    assert [each.type for each in events(store, ID)] == ["queued"]
    with pytest.raises(Invalid, match="webhook calls"):  # 22 bytes wait
        queue(store, ID, NewDelivery(TASK, b"1234", NOW))
    queue(store, ID, NewDelivery(TASK, b"123", NOW))
    assert bodies(store) == [b"at once"]
    found = {each.body: each for each in store.outbox.due(NOW + 2 * SECOND, 10)}
    assert list(found) == [b"at once", b"failed"]
    assert (found[b"failed"].due_since, found[b"failed"].attempts) == (NOW + 2 * SECOND, 1)
    store.outbox.remove(found[b"failed"].id)
    assert bodies(store) == [b"behind it", b"at once"]


@pytest.mark.usefixtures("installed")
def test_upgrade_keeps_copy_that_old_version_takes(
    open_store: Callable[..., StoreDatabase], path: Path
) -> None:
    open_store().close()
    copy = copy_of(path, 1)

    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with pytest.raises(NewerFile):
        open_database(path, VERSION_1)
    with closing(open_database(copy, VERSION_1)) as connection:
        assert [row["id"] for row in connection.execute("SELECT id FROM executions")] == [ID]
        assert connection.execute("SELECT count(*) FROM deliveries").fetchone()[0] == 3


def test_new_file_and_upgraded_file_have_no_copy(
    open_store: Callable[..., StoreDatabase], path: Path
) -> None:
    for _ in range(2):
        open_store().close()

    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_failed_migration_leaves_the_file_as_it_was(path: Path) -> None:
    make_version_1(path, ())
    broken = replace(SCHEMA, migrations=(*SCHEMA.migrations, ("CREATE TABLE events (a INTEGER)",)))

    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        open_database(path, broken)

    with closing(open_database(path, VERSION_1)) as connection:
        assert connection.execute("SELECT count(*) FROM deliveries").fetchone()[0] == 3


def test_upgrade_without_room_for_the_copy_changes_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "4m") as folder:
        path = folder / "journal.db"
        make_version_1(path, ())
        fill(folder / "filler")
        os.truncate(folder / "filler", (folder / "filler").stat().st_size - 64 * 1024)

        with pytest.raises(NoRoomToOpen):
            StoreDatabase(path, KEY)

        (folder / "filler").unlink()
        assert not list(folder.glob("*.version-*"))
        with closing(StoreDatabase(path, KEY)) as store:
            assert unfinished(store) == [ID]


async def test_copy_is_deleted_when_its_executions_are_beyond_retention(
    handle: Store, nursery: trio.Nursery, path: Path
) -> None:
    make_version_1(path, ())
    await nursery.start(handle.run)
    copy = copy_of(path, 1)
    os.utime(copy, times=(NOW.timestamp(), NOW.timestamp()))

    await handle.prune(NOW + timedelta(days=29))
    assert copy.exists()
    await handle.prune(NOW + timedelta(days=31))
    assert not copy.exists()
