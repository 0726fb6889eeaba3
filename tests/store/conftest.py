"""Fixtures: a store on a real file, with the test's own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from pydantic import SecretBytes

from smartlinkd.store.actor import Store
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import StoreLimits
from tests.store.calls import KEY, NOW, Connections, make_store, note_connections


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def store_limits() -> StoreLimits:
    """The limits of the store; a test's parameter of this name replaces them."""
    return StoreLimits()


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    """The connections of opened stores, for tests that watch them or limit their disk."""
    return note_connections(monkeypatch)


@pytest.fixture
def open_store(path: Path, store_limits: StoreLimits) -> Iterator[Callable[..., StoreDatabase]]:
    """Return a function that opens the file; open stores are closed at the end."""
    with ExitStack() as opened:

        def open_it(key: SecretBytes = KEY, limits: StoreLimits = store_limits) -> StoreDatabase:
            store = StoreDatabase(path, key, limits=limits)
            return opened.enter_context(closing(store))

        yield open_it


@pytest.fixture
def store(open_store: Callable[..., StoreDatabase]) -> StoreDatabase:
    return open_store()


@pytest.fixture
def wall() -> SimpleNamespace:
    """The wall clock: `wall.now`."""
    return SimpleNamespace(now=NOW)


@pytest.fixture
def disk_notices() -> list[bool]:
    """The notices about the disk: True if it is full, False if there is space again."""
    return []


@pytest.fixture
def handle(
    path: Path, wall: SimpleNamespace, store_limits: StoreLimits, disk_notices: list[bool]
) -> Store:
    """The store's actor, not running."""
    return make_store(
        path,
        limits=store_limits,
        wall=lambda: wall.now,
        on_disk_full_changed=disk_notices.append,
    )


@pytest.fixture
async def journal(handle: Store, nursery: trio.Nursery) -> Store:
    """The running actor."""
    await nursery.start(handle.run)
    return handle
