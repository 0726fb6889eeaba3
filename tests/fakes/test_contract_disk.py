"""Contract of the fake and a real disk: the store's errors when it is full, locked or damaged.

`tests/store/test_disk.py` tests a disk whose writes fail (`BROKEN`): that needs its own process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.errors import Unavailable
from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.errors import UnusableStore
from smartlinkd.store.model import IdempotencyKey, NewExecution, StoreLimits
from tests.fakes.disk import DAMAGED, FULL, Disk
from tests.fakes.threads import threads_in_place
from tests.store.calls import KEY, make_store, new, note_connections

PATIENCE = 1.0
"""Seconds that SQLite waits for a lock here."""


class Fake(Disk):
    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.path = path
        threads_in_place(patch)
        self.install(patch)

    def fill(self) -> None:
        self.fault = FULL

    def damage(self, _: Path) -> None:
        self.fault = DAMAGED


class Real:
    """A real file: it may grow no more, another program locks it, or it has other content."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.path = path
        self._opened = note_connections(patch)
        self._held = ExitStack()

    def fill(self) -> None:
        (pages,) = self._opened[-1].execute("PRAGMA page_count").fetchone()
        self._opened[-1].execute(f"PRAGMA max_page_count = {pages}").fetchone()

    def lock(self) -> None:
        other = self._held.enter_context(closing(sqlite3.connect(self.path, isolation_level=None)))
        other.execute("BEGIN IMMEDIATE")

    def damage(self, path: Path) -> None:
        path.write_bytes(b"no database " * 4096)

    def heal(self) -> None:
        self._held.close()
        self._opened[-1].execute("PRAGMA max_page_count = 1000000").fetchone()


Play = Callable[[Callable[[Store, Any], Any]], None]


@pytest.fixture(params=["fake", "real"])
def play(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """A function that runs a scenario, which gets a store and its disk."""
    fake = request.param == "fake"
    path = tmp_path / "journal.db"
    kind: type[Fake | Real] = Fake if fake else Real
    journal = make_store(path, limits=StoreLimits(busy_timeout_s=PATIENCE))

    async def main(scenario: Callable[[Store, Any], Any]) -> None:
        disk = kind(path, monkeypatch)
        async with trio.open_nursery() as nursery:
            await nursery.start(journal.run)
            await scenario(journal, disk)
            nursery.cancel_scope.cancel()

    def run(scenario: Callable[[Store, Any], Any]) -> None:
        trio.run(main, scenario, clock=MockClock(autojump_threshold=0) if fake else None)

    return run


def large() -> NewExecution:
    """Return an execution that needs a page of its own in the file."""
    return new(inputs={"x": "y" * 100_000})


@pytest.mark.parametrize(
    ("fault", "why"), [("fill", "its disk is full"), ("lock", "another program holds it locked")]
)
def test_failed_write_changes_nothing_and_next_one_succeeds(
    play: Play, fault: str, why: str
) -> None:
    async def scenario(journal: Store, disk: Any) -> None:
        before = large()
        await journal.create(before, idempotency=None)
        getattr(disk, fault)()
        unused = IdempotencyKey("k", {})
        refusal = f"could not be used: {why}; nothing was changed"
        with pytest.raises(Unavailable, match=refusal) as refused:
            await journal.create(large(), idempotency=unused)
        assert str(disk.path) not in str(refused.value)  # clients read the message
        assert refused.value.retry_after > 0
        assert [each.id for each in await journal.unfinished()] == [before.id]  # reading works
        disk.heal()
        after = large()
        assert await journal.create(after, idempotency=unused) == after.id
        assert [each.id for each in await journal.unfinished()] == [before.id, after.id]

    play(scenario)


def test_write_waits_for_lock_released_in_time(play: Play) -> None:
    async def scenario(journal: Store, disk: Any) -> None:
        disk.lock()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heal_later, disk)
            await journal.create(large(), idempotency=None)
        assert trio.current_time() - began >= PATIENCE / 3

    play(scenario)


async def _heal_later(disk: Any) -> None:
    await trio.sleep(PATIENCE / 3)
    disk.heal()


def test_cancelled_write_ends_before_the_next_call(play: Play) -> None:
    async def scenario(journal: Store, disk: Any) -> None:
        disk.lock()
        began = trio.current_time()
        with trio.move_on_after(PATIENCE / 3):
            await journal.create(large(), idempotency=None)
        await journal.unfinished()  # runs after the cancelled call has ended
        assert trio.current_time() - began >= PATIENCE * 0.9
        disk.heal()
        assert await journal.unfinished() == []

    play(scenario)


def test_damaged_file_is_not_opened(play: Play) -> None:
    async def scenario(journal: Store, disk: Any) -> None:
        await journal.unfinished()
        await wait_all_tasks_blocked()  # the work of the store's start has ended
        another = disk.path.with_name("another.db")
        disk.damage(another)
        with pytest.raises(UnusableStore, match="is damaged"):
            await trio.to_thread.run_sync(StoreDatabase, another, KEY)

    play(scenario)
