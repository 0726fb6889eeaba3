"""The file: made for its owner only, refused when it is newer or damaged, and then left alone."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from smartlinkd.store.database import StoreDatabase, open_file
from smartlinkd.store.errors import NoRoomToOpen, UnusableStore
from smartlinkd.store.model import NewExecution, StoreLimits

Open = Callable[..., StoreDatabase]
Create = Callable[..., str]

NEWER_IN_THE_WAL = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA user_version = 3")
os.kill(os.getpid(), 9)
"""


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def contents(path: Path) -> dict[str, str]:
    """Digests of the file and its log; the index beside them says nothing that they do not."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in (path, path.with_name(f"{path.name}-wal"))
        if file.exists() and file.stat().st_size
    }


def test_a_new_file_is_its_owners_only(store: StoreDatabase, create: Create, path: Path) -> None:
    create()

    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_file_is_opened_again_with_all_it_holds(
    store: StoreDatabase, create: Create, open_store: Open
) -> None:
    execution_id = create()
    before = store.execution(execution_id)
    store.close()

    assert open_store().execution(execution_id) == before


def test_a_start_that_was_cut_short_is_made_up_for(
    path: Path, open_store: Open, new: Callable[..., NewExecution]
) -> None:
    path.touch()

    assert open_store().create(new(), None).is_new


def test_a_newer_file_is_refused_and_untouched(
    store: StoreDatabase, create: Create, path: Path, open_store: Open
) -> None:
    create()
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")
    before = contents(path)

    with pytest.raises(UnusableStore, match=f"{path} was written by a newer .*version 3"):
        open_store()

    assert contents(path) == before


def test_a_newer_file_that_was_not_closed_is_refused_and_untouched(
    store: StoreDatabase, create: Create, path: Path, open_store: Open
) -> None:
    """The version stands in the log only; closing a connection that can write would move it."""
    create()
    store.close()
    subprocess.run([sys.executable, "-c", NEWER_IN_THE_WAL, path], check=False, timeout=20)
    before = contents(path)
    assert len(before) == 2

    with pytest.raises(UnusableStore, match="newer smartlinkd"):
        open_store()

    assert contents(path) == before


def test_what_is_no_database_is_refused_by_name(path: Path, open_store: Open) -> None:
    path.write_bytes(b"not a database " * 1000)

    with pytest.raises(UnusableStore, match=rf"{path} is damaged .*put back a backup"):
        open_store()


def test_damage_that_is_met_later_is_told_by_name(
    store: StoreDatabase, new: Callable[..., NewExecution], path: Path, open_store: Open
) -> None:
    given = new(inputs={"x": "y" * 50_000})
    store.create(given, None)
    store.close()
    spoil(path, b"y" * 500, b"y" * 499 + b"\xff")

    with pytest.raises(UnusableStore, match=rf"{path} is damaged .*\.dump") as raised:
        open_store().execution(given.id)
    assert "yyy" not in "".join(traceback.format_exception(raised.value))


def test_a_damaged_page_is_told_by_name(
    store: StoreDatabase, create: Create, path: Path, open_store: Open
) -> None:
    for _ in range(200):
        execution_id = create()
    store.close()
    content = path.read_bytes()
    page = content.index(execution_id.encode()) // 4096 * 4096
    with path.open("r+b") as file:
        file.seek(page)
        file.write(b"\xee" * 4096)

    with pytest.raises(UnusableStore, match=f"{path} is damaged"):
        open_store().execution(execution_id)


def test_text_that_should_be_json_is_damage(
    store: StoreDatabase, create: Create, path: Path, open_store: Open
) -> None:
    execution_id = create(inputs={"topic": "green tea"})
    store.close()
    spoil(path, b'"green tea"', b'"green tea{')

    with pytest.raises(UnusableStore, match="should be JSON"):
        open_store().execution(execution_id)


def spoil(path: Path, right: bytes, wrong: bytes) -> None:
    content = path.read_bytes()
    assert right in content
    path.write_bytes(content.replace(right, wrong))


def test_a_folder_that_is_missing_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "journal.db"

    with pytest.raises(UnusableStore, match=rf"{path} cannot be used .*its folder"):
        open_file(path)


def test_a_disk_that_takes_no_file_is_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NoRoomToOpen, match=f"{path}: its disk is full; make room"):
        open_file(path)


def test_a_file_that_another_program_holds_is_refused(
    store: StoreDatabase, path: Path, open_store: Open
) -> None:
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnusableStore, match=rf"{path}: another program .*end the other"):
            open_store(limits=StoreLimits(busy_timeout_s=0.0))
