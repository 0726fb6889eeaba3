"""The floor of an execution: the least program that keeps the daemon's promises.

    python -m bench.peers.promises_alone FOLDER    # prints its address; ends with standard input

An answered kickoff is not lost, a result is on the disk before it is told, and no worker outlives
the server. It takes two routes, two transactions and a reaper, on SQLite and the daemon's own
server and fork server. It checks no token, validates no body, has no queue and writes no events.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import trio

from bench.program import INPUTS, PYTHON, result_of
from smartlinkd.http_server import GuardedQuart, ServedApp, serve
from smartlinkd.processes.process_tree import (
    fork_server,
    run_process_tree,
)

AT_A_TIME: Final = 16
MESSAGES: Final = 2
"""Messages of the program; the last is its result."""
LIMIT: Final = 1 << 30
"""Bytes of the program's memory, and of any file that it writes."""
ENVIRONMENT: Final = {"PATH": os.defpath}
TABLE: Final = "CREATE TABLE executions (id TEXT PRIMARY KEY, result TEXT)"
CREATED: Final = "INSERT INTO executions (id) VALUES (?)"
ENDED: Final = "UPDATE executions SET result = ? WHERE id = ?"


class Database:
    """A database of one table, used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(TABLE)
        self._one = trio.CapacityLimiter(1)

    async def write(self, statement: str, *values: str) -> None:
        await trio.to_thread.run_sync(
            self._connection.execute, statement, values, limiter=self._one
        )


@dataclass
class Execution:
    ended: trio.Event = field(default_factory=trio.Event)
    result: str = ""


def make_app(database: Database, workers: trio.Nursery) -> GuardedQuart:
    """Return an app with two routes: kick an execution off, and wait for its result."""
    app = GuardedQuart()
    executions: dict[str, Execution] = {}
    places = trio.CapacityLimiter(AT_A_TIME)

    async def run_execution(id_: str) -> None:
        async with places, trio.open_nursery() as nursery:
            await run_once(lambda result: nursery.start_soon(finish, id_, result))

    async def finish(id_: str, result: str) -> None:
        executions[id_].result = result
        await database.write(ENDED, result, id_)
        executions[id_].ended.set()

    @app.post("/kickoff")
    async def kickoff() -> dict[str, Any]:
        id_ = str(uuid4())
        await database.write(CREATED, id_)
        executions[id_] = Execution()
        workers.start_soon(run_execution, id_)
        return {"kickoff_id": id_}

    @app.get("/status/<id_>")
    async def status(id_: str) -> dict[str, Any]:
        await executions[id_].ended.wait()
        return {"state": "SUCCESS", "result": executions[id_].result}

    return app


async def run_once(on_result: Callable[[str], None]) -> None:
    """Run the program to its end. `on_result` is called with its result as soon as it is read."""
    ours, theirs = socket.socketpair()
    with trio.socket.from_stdlib_socket(ours) as line, theirs:
        async with run_process_tree(
            PYTHON,
            environment=ENVIRONMENT,
            working_folder=Path("/"),
            channel=theirs.fileno(),
            memory=LIMIT,
            file_size=LIMIT,
        ) as process:
            theirs.close()
            await line.send(INPUTS)
            said = b""
            while said.count(b"\n") < MESSAGES:
                if not (data := await line.recv(4096)):
                    raise RuntimeError(f"the program ended without a result: {said!r}")
                said += data
            on_result(result_of(said.decode()))
            await process.wait()


async def main(folder: Path) -> None:
    stop = trio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with fork_server(), trio.open_nursery() as workers:
            app = make_app(Database(folder / "database"), workers)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_serve, app, listening, stop)
                print("http://{}:{}".format(*listening.getsockname()), flush=True)
                await trio.to_thread.run_sync(sys.stdin.read)
                stop.set()


async def _serve(app: GuardedQuart, listening: socket.socket, stop: trio.Event) -> None:
    await serve(ServedApp(app), [listening], grace=0.0, stop=stop)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
