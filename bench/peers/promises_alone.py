"""The least that keeps what is promised of an execution: asked for over HTTP, no kickoff that was
answered is lost, its result is on the disk before it is told, and nothing outlives the daemon.

    python -m bench.peers.promises_alone FOLDER    # prints its address; ends with its input

So: two routes, two transactions of one row, and a reaper, on the server, the database and the
fork server that the daemon has itself. Nobody would do it like this: no token is asked for, no body
looked at, no line kept, no event written, and whoever fails takes all with them. It shows what is
left to save for anybody who makes these promises with these libraries.
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
    run_process_tree,
    shared_fork_server,
)

AT_A_TIME: Final = 16
MESSAGES: Final = 2
"""That the program says; the last is its result."""
LIMIT: Final = 1 << 30
"""Bytes of memory, and of any one file."""
ENVIRONMENT: Final = {"PATH": os.defpath}
TABLE: Final = "CREATE TABLE executions (id TEXT PRIMARY KEY, result TEXT)"
CREATED: Final = "INSERT INTO executions (id) VALUES (?)"
ENDED: Final = "UPDATE executions SET result = ? WHERE id = ?"


class Disk:
    """A database of one table, and the thread that alone uses it."""

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


def app_of(disk: Disk, workers: trio.Nursery) -> GuardedQuart:
    """What is asked: kick one off, and wait for its result."""
    app = GuardedQuart()
    executions: dict[str, Execution] = {}
    places = trio.CapacityLimiter(AT_A_TIME)

    async def carry_out(id_: str) -> None:
        async with places, trio.open_nursery() as nursery:
            await run_once(lambda result: nursery.start_soon(tell, id_, result))

    async def tell(id_: str, result: str) -> None:
        executions[id_].result = result
        await disk.write(ENDED, result, id_)
        executions[id_].ended.set()

    @app.post("/kickoff")
    async def kickoff() -> dict[str, Any]:
        id_ = str(uuid4())
        await disk.write(CREATED, id_)
        executions[id_] = Execution()
        workers.start_soon(carry_out, id_)
        return {"kickoff_id": id_}

    @app.get("/status/<id_>")
    async def status(id_: str) -> dict[str, Any]:
        await executions[id_].ended.wait()
        return {"state": "SUCCESS", "result": executions[id_].result}

    return app


async def run_once(told: Callable[[str], None]) -> None:
    """Run the program to its end. `told` is called with its result as soon as it has said it."""
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
            told(result_of(said.decode()))
            await process.wait()


async def main(folder: Path) -> None:
    stop = trio.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with shared_fork_server(), trio.open_nursery() as workers:
            app = app_of(Disk(folder / "database"), workers)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_serve, app, listening, stop)
                print("http://{}:{}".format(*listening.getsockname()), flush=True)
                await trio.to_thread.run_sync(sys.stdin.read)
                stop.set()


async def _serve(app: GuardedQuart, listening: socket.socket, stop: trio.Event) -> None:
    await serve(ServedApp(app), [listening], grace=0.0, stop=stop)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
