"""A full, locked, damaged or foreign file: entries may be lost, and nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.errors import Unavailable
from smartlinkd.history.model import ALL, HistoryLimits, HistoryRetention
from tests.fakes.small_disk import fill, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.history.conftest import Open, RunningHistory

SHIRT = "https://shopee.vn/product/7/41"
LAMP = "https://shopee.vn/product/7/42"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that can be filled."""
    with small_disk(tmp_path / "disk", "16M") as folder:
        yield folder


def write(path: Path, given: bytes) -> None:
    path.write_bytes(given)


def content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def damage(path: Path) -> None:
    """Spoil all pages but the first."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))


async def said(caplog: pytest.LogCaptureFixture, text: str) -> None:
    with trio.fail_after(10):
        while text not in caplog.text:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


async def test_full_disk_loses_what_memory_does_not_hold(
    open_history: Open, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(disk / "filler")
    limits = HistoryLimits(pending=10, gather_s=0, retry_s=0.02)
    async with open_history(limits, file=disk / "history.sqlite") as running:
        for number in range(25):
            running.convert(f"{LAMP}{number}")
        await said(caplog, "its disk is full")
        (disk / "filler").unlink()
        await said(caplog, "is written again; 15 entries were lost")
        assert await running.links() == [f"{LAMP}{number}" for number in range(9, -1, -1)]


async def test_end_with_full_disk_is_in_order_and_counts_what_is_lost(
    open_history: Open, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(disk / "filler")
    async with open_history(file=disk / "history.sqlite") as running:
        running.convert(SHIRT, LAMP)
    assert "2 entries of the history were not written" in caplog.text


async def test_reader_of_locked_file_is_refused_and_the_next_is_served(
    running: RunningHistory, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running.convert(SHIRT)
    assert await running.links() == [SHIRT]
    with closing(sqlite3.connect(path, isolation_level=None)) as other_program:
        other_program.execute("BEGIN IMMEDIATE")
        running.convert(LAMP)
        await said(caplog, "another program holds it locked")
        with pytest.raises(Unavailable, match="another program holds it locked"):
            await running.history.delete(ALL)
    assert await running.links() == [LAMP, SHIRT]


async def test_damaged_file_is_set_aside_at_start(
    open_history: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, b"this is no database" * 1000)
    async with open_history() as running:
        running.convert(SHIRT)
        await said(caplog, "is history.sqlite.damaged now, and the history begins anew")
        await said(caplog, "is written again")
        assert await running.links() == [SHIRT]
    aside = content(path.with_name("history.sqlite.damaged"))
    assert aside.startswith(b"this is no database")


async def test_damage_that_shows_while_it_runs_sets_the_file_aside(
    open_history: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_history() as running:
        running.convert(*(f"{LAMP}{number}" for number in range(500)))
        await running.links()
    damage(path)
    damaged = content(path)
    async with open_history() as running:
        running.convert(SHIRT)
        await said(caplog, "is history.sqlite.damaged now, and the history begins anew")
        assert await running.links() == [SHIRT]
    assert len(content(path.with_name("history.sqlite.damaged"))) == len(damaged)


async def test_newer_file_is_left_alone_and_the_history_is_off(
    open_history: Open, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("CREATE TABLE entries (other TEXT)")
        newer.execute("PRAGMA user_version = 99")
    before = content(path)
    async with open_history() as running:
        running.convert(SHIRT)
        await said(caplog, "written by a newer smartlinkd")
        with pytest.raises(
            Unavailable, match=r"install that one again, or move history\.sqlite away"
        ):
            await running.links()
    assert content(path) == before
    assert content(path.with_name("history.sqlite.damaged")) == b""


@pytest.fixture
def folder(path: Path) -> Path:
    """In the place of the file."""
    path.mkdir()
    return path


async def test_file_that_cannot_be_opened_is_refused_with_the_reason(
    open_history: Open, folder: Path
) -> None:
    async with open_history() as running:
        running.convert(SHIRT)
        with pytest.raises(Unavailable, match=r"history cannot be used: its? \w+"):
            await running.links()


async def test_retention_is_taken_while_the_disk_is_full(open_history: Open, disk: Path) -> None:
    async with open_history(file=disk / "history.sqlite") as running:
        running.convert(SHIRT)
        assert await running.links() == [SHIRT]
        fill(disk / "filler")
        running.history.set_retention(HistoryRetention(running.clock.now - running.clock.now, 1, 1))
        running.convert(LAMP)
        (disk / "filler").unlink()
        with trio.fail_after(10):
            while await running.links():  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.01)
