"""A journal that was filled is one that the daemon could have written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretBytes

from bench.kept import EVENTS, execution_id, keep
from smartlinkd.store.database import StoreDatabase
from smartlinkd.store.model import ExecutionState

NUMBER = 3


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    keep(tmp_path / "state", "bench", NUMBER)
    return tmp_path / "state" / "journal.sqlite3"


def test_each_execution_has_its_task_and_its_events(journal: Path) -> None:
    with closing(StoreDatabase(journal, SecretBytes(b"k" * 32))) as store:
        for number in range(1, NUMBER + 1):
            found = store.execution(execution_id(number), "bench", "")
            assert found is not None
            assert (found.state, found.completed_tasks) == (
                ExecutionState.SUCCESS,
                len(found.tasks),
            )
            assert found.tasks[0].output == "done"
            assert len(store.events(found.id, after=0, limit=2 * EVENTS)) == EVENTS


def test_what_a_tasks_record_takes_is_counted(journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as connection:
        told = connection.execute(
            "SELECT tasks_size, length(record) FROM executions JOIN tasks ON execution = sequence"
        ).fetchall()
    assert [counted == size > 0 for counted, size in told] == [True] * NUMBER
