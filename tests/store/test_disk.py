"""A full, locked or broken disk: the asker hears of it, nothing is changed, life goes on."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.errors import Unavailable
from smartlinkd.store import database as store_module
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase, open_file
from smartlinkd.store.model import (
    Change,
    ExecutionUpdate,
    IdempotencyKey,
    NewEvent,
    NewExecution,
    Status,
    StoreLimits,
)

New = Callable[..., NewExecution]
Connections = list[sqlite3.Connection]


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """The connections of the stores that are opened from now on, to give them a bad disk."""
    opened: Connections = []

    def opening(path: Path, **options: Any) -> sqlite3.Connection:
        opened.append(open_file(path, **options))
        return opened[-1]

    monkeypatch.setattr(store_module, "open_file", opening)
    return opened


def fill(connection: sqlite3.Connection) -> None:
    """From here on, this database gets no further page."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}").fetchone()


def make_room(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA max_page_count = 1000000").fetchone()


def test_create_on_a_full_disk_is_refused_and_changes_nothing(
    connections: Connections, open_store: Callable[..., StoreDatabase], new: New, path: Path
) -> None:
    store = open_store()
    key = IdempotencyKey("k", {})
    given = new(inputs={"x": "y" * 100_000})
    fill(connections[0])

    with pytest.raises(Unavailable, match="its disk is full; nothing was changed") as refusal:
        store.create(given, key)

    assert str(path) not in str(refusal.value)  # a client reads it
    assert refusal.value.retry_after > 0
    assert store.execution(given.id) is None
    assert store.unfinished() == []
    make_room(connections[0])
    assert store.create(given, key).is_new
    assert store.execution(given.id) is not None


def test_record_on_a_full_disk_is_refused_whole(
    connections: Connections, open_store: Callable[..., StoreDatabase], new: New
) -> None:
    store = open_store()
    given = new()
    store.create(given, None)
    before = store.execution(given.id)
    events = [NewEvent("e", given.created_at, "x" * 3000)] * 50
    fill(connections[0])

    with pytest.raises(Unavailable, match="disk is full"):
        store.record(given.id, ExecutionUpdate(Change(status=Status.RUNNING), events))

    assert store.execution(given.id) == before
    assert store.events(given.id, 0, 10) == []
    make_room(connections[0])
    store.record(given.id, ExecutionUpdate(Change(status=Status.RUNNING), events))
    assert [event.number for event in store.events(given.id, 49, 100)] == [50]


async def test_actor_goes_on_after_a_full_disk(
    connections: Connections, journal: Store, new: New
) -> None:
    given = new(inputs={"x": "y" * 100_000})
    fill(connections[0])

    with pytest.raises(Unavailable, match="disk is full"):
        await journal.create(given, idempotency=None)

    make_room(connections[0])
    assert (await journal.create(given, idempotency=None)).is_new
    assert len(connections) == 1


def test_lock_of_another_program_is_unavailable(
    store: StoreDatabase,
    new: New,
    path: Path,
    open_store: Callable[..., StoreDatabase],
) -> None:
    impatient = open_store(limits=StoreLimits(busy_timeout_s=0.0))
    given = new()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another program holds it locked"):
            impatient.create(given, None)

    assert impatient.create(given, None).is_new


@pytest.mark.parametrize("another", [False, True], ids=["away", "another"])
def test_write_to_a_moved_file_is_refused(
    store: StoreDatabase,
    new: New,
    path: Path,
    open_store: Callable[..., StoreDatabase],
    another: bool,
) -> None:
    """SQLite goes on writing to it, and all of that would be gone with the daemon."""
    before, after = new(), new()
    store.create(before, None)
    moved = path.rename(path.with_name("moved"))
    if another:
        path.touch()

    with pytest.raises(Unavailable, match="its file was removed, or moved away") as refusal:
        store.create(after, None)

    assert str(path) not in str(refusal.value)  # a client reads it
    assert [each.id for each in store.unfinished()] == [before.id]
    moved.replace(path)
    assert store.create(after, None).is_new
    assert [each.id for each in open_store().unfinished()] == [before.id, after.id]


def test_read_only_disk_is_unavailable(
    connections: Connections, open_store: Callable[..., StoreDatabase], new: New
) -> None:
    store = open_store()
    given = new()
    connections[0].execute("PRAGMA query_only = ON")

    with pytest.raises(Unavailable, match="it cannot be written to"):
        store.create(given, None)

    assert store.execution(given.id) is None


# A file may not grow beyond a size: a real write fails in the midst of a transaction.
SMALL_FILES = """
import resource, sys, uuid
from datetime import datetime, timezone
from pathlib import Path
from pydantic import SecretBytes
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import NewExecution
from smartlinkd.store.database import StoreDatabase

def new():
    now = datetime.now(timezone.utc)
    return NewExecution(str(uuid.uuid4()), "c", "", now, {"x": "y" * 20_000})

store = StoreDatabase(Path(sys.argv[1]), SecretBytes(b"k" * 32))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
try:
    for _ in range(100):
        print(store.create(new(), None).id, flush=True)
except Unavailable as refusal:
    print(refusal, file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(store.create(new(), None).id, flush=True)
"""


def test_write_that_fails_midway_loses_nothing(
    path: Path, open_store: Callable[..., StoreDatabase]
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SMALL_FILES, path],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    assert "its disk reports an error; nothing was changed" in ran.stderr
    promised = ran.stdout.split()
    assert 3 < len(promised) < 100
    assert [execution.id for execution in open_store().unfinished()] == promised
