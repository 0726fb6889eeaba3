"""A moved, read-only or broken file: the caller gets an error, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd.errors import Unavailable
from smartlinkd.store.database import StoreDatabase
from tests.store.calls import Connections, new, unfinished


@pytest.mark.parametrize("another", [False, True], ids=["away", "another"])
def test_write_to_a_moved_file_is_refused(
    store: StoreDatabase,
    path: Path,
    open_store: Callable[..., StoreDatabase],
    another: bool,
) -> None:
    """SQLite would write on to the moved file, and its data would be lost with the daemon."""
    before, after = new(), new()
    store.executions.create(before)
    moved = path.rename(path.with_name("moved"))
    if another:
        path.touch()

    with pytest.raises(Unavailable, match="its file was removed, or moved away") as refusal:
        store.executions.create(after)

    assert str(path) not in str(refusal.value)  # clients read the message
    assert unfinished(store) == [before.id]
    moved.replace(path)
    store.executions.create(after)
    assert unfinished(open_store()) == [before.id, after.id]


def test_read_only_disk_is_unavailable(connections: Connections, store: StoreDatabase) -> None:
    given = new()
    connections[0].execute("PRAGMA query_only = ON")

    with pytest.raises(Unavailable, match="it cannot be written to"):
        store.executions.create(given)

    assert store.executions.read(given.id) is None


# The size of a file is limited, so a real write fails in the middle of a transaction.
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
        print(store.executions.create(new()), flush=True)
except Unavailable as refusal:
    print(refusal, file=sys.stderr)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(store.executions.create(new()), flush=True)
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
    assert unfinished(open_store()) == promised
