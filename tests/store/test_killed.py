"""SIGKILL during writes: reported writes are kept, and no write is kept in part."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.file import open_file
from tests.store.calls import events

# A writer that creates executions and records starts with events and tasks, and prints each
# answered write.
WRITER = """
import sys, uuid, trio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from pydantic import SecretBytes
from smartlinkd.store.actor import Store
from smartlinkd.store.model import *

now = datetime.now(timezone.utc)
kept = Retention(age=timedelta(days=1), count=1000)
journal = Store(Path(sys.argv[1]), key=SecretBytes(b"k" * 32), retention=kept)

async def write():
    while True:
        new = NewExecution(str(uuid.uuid4()), "c", "", now, {"x": "y" * 5000})
        await journal.create(new, idempotency=None)
        print("created", new.id, flush=True)
        change = Change(status=Status.RUNNING, started_at=now, new_tasks=[TaskRecord("t")] * 5)
        await journal.record(new.id, ExecutionUpdate(change, [NewEvent("e", now, "z" * 2000)] * 5))
        print("started", new.id, flush=True)

async def main():
    async with trio.open_nursery() as nursery:
        await nursery.start(journal.run)
        for _ in range(3):
            nursery.start_soon(write)

trio.run(main)
"""


def test_commit_waits_for_the_disk(path: Path) -> None:
    """The kernel keeps writes after a kill; only this setting keeps them after a power failure."""
    with closing(open_file(path)) as connection:
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()

    assert (synchronous, mode) == (2, "wal")  # 2 is FULL


@pytest.mark.parametrize("reports", [1, 25])
def test_answered_writes_survive_sigkill(
    path: Path, open_store: Callable[..., StoreDatabase], reports: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(reports)]
        writer.kill()
        # The last line may have been cut off; such a report does not count.
        lines += [line for line in writer.stdout if line.endswith("\n")]
    told = [line.split() for line in lines]

    store = open_store()
    found = {execution.id: execution for execution in store.executions.unfinished()}
    assert len(told) >= reports
    assert {one for _, one in told} <= set(found)
    assert all(found[one].started_at for what, one in told if what == "started")
    for one, execution in found.items():
        parts = 5 if execution.started_at else 0
        assert execution.completed_tasks == parts
        assert len(events(store, one)) == parts
