"""A crew whose worker is written in Python, and the real executor with a journal to run it."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import trio
from pydantic import SecretBytes

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import Crew, Input
from smartlinkd.crews.worker import WorkerSettings
from smartlinkd.store.actor import Store
from smartlinkd.store.model import Retention

HEAD = """\
import json, os, socket, sys

ends = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"]))
heard, line = ends.makefile("r", encoding="utf-8"), ends.makefile("w", encoding="utf-8")


def say(type, **fields):
    print(json.dumps({"type": type, **fields}), file=line, flush=True)


def hear():
    message = json.loads(heard.readline())
    return sys.exit("stopped") if message["type"] == "stop" else message


"""


def alpha(folder: Path, script: str, *, other: Input, max_running: int) -> Crew:
    """The crew "alpha" of ann and bob, with a topic and one more input; two may wait. `script` is
    what the worker does, with `say` and `hear`.
    """
    program = folder / "worker.py"
    program.write_text(HEAD + script)
    command = (sys.executable, "-S", str(program))
    return Crew(
        name="alpha",
        worker=WorkerSettings(command, {}, memory=256 * 1024 * 1024, grace=2.0),
        inputs=(Input("topic"), other),
        max_running=max_running,
        queue=2,
        deadline=60,
        human_deadline=60,
        on_restart="fail",
        users=("ann", "bob"),
        tools=(),
    )


async def run_executor(nursery: trio.Nursery, crews: Catalog, folder: Path) -> Executor:
    """Start one, with a journal of its own."""
    store = Store(
        folder / "journal.sqlite3",
        key=SecretBytes(bytes(32)),
        retention=Retention(timedelta(days=1), 100),
    )
    executor = Executor(crews, store, tools={}, runs=folder / "runs", queued=lambda: None)
    await nursery.start(store.run)
    await nursery.start(executor.run)
    return executor
