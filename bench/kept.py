"""A store with many ended executions, written before the daemon's first start.

Each table is filled by one statement. The daemon's own way, one transaction for each execution,
would take minutes.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from smartlinkd.store.file import open_file

TASK: Final = '{"task_id":"write","name":"write","output":"done","execution_time":1.5}'
EVENTS: Final = 4
"""Events of an execution: as many as one has with a single task, without its steps."""


def execution_id(number: int) -> str:
    """Return the id of the execution with that number, from 1."""
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def store_executions(state: Path, crew: str, executions: int) -> None:
    """Fill the executions' file of a daemon that was never started. `state` is its directory."""
    state.mkdir(mode=0o700)
    with closing(open_file(state / "journal.sqlite3")) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        numbers = (
            "WITH RECURSIVE numbers (n) AS "
            f"(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {executions}) "
        )
        connection.execute(
            "INSERT INTO executions (id, crew, owner, state, status, created_at, started_at, "
            "finished_at, total_tasks, completed_tasks, tasks_size, last_event, result) "
            + numbers
            + "SELECT "
            "printf('%08x-0000-4000-8000-%012x', n, n), ?, '', 'SUCCESS', 'completed', "
            "(unixepoch() - ? + n) * 1000000, (unixepoch() - ? + n) * 1000000, "
            "(unixepoch() - ? + n) * 1000000, 1, 1, ?, ?, "
            "'A post of some length: ' || hex(zeroblob(200)) "
            "FROM numbers",
            (crew, executions, executions, executions, len(TASK), EVENTS),
        )
        connection.execute(
            "INSERT INTO kickoffs (execution, inputs) "
            'SELECT sequence, \'{"topic":"bench"}\' FROM executions'
        )
        connection.execute(
            "INSERT INTO tasks (execution, number, record) SELECT sequence, 1, ? FROM executions",
            (TASK,),
        )
        connection.execute(
            "INSERT INTO events (execution, number, timestamp, type, data) "
            "WITH RECURSIVE places (p) AS "
            f"(SELECT 1 UNION ALL SELECT p + 1 FROM places WHERE p < {EVENTS}) "
            "SELECT sequence, p, created_at, 'task_completed', '{\"output\":\"done\"}' "
            "FROM executions, places"
        )
        connection.execute("COMMIT")
