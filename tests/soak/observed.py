"""The daemon with an observer in its process: `python -m tests.soak.observed SOCKET serve …`.

Trio's tasks and Python's memory cannot be seen from another process. This module runs the daemon's
own `main` unchanged, and a thread that answers each connection to a Unix socket with a snapshot.
"""

from __future__ import annotations

import gc
import json
import os
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from smartlinkd import cli
from tests.hygiene.fork_server import fork_server_sockets
from tests.hygiene.tasks import all_tasks
from tests.soak.memory import memory_of

Json = dict[str, Any]
TakeSnapshot = Callable[[], Json]


class _TokenHolder(trio.abc.Instrument):
    """Keeps trio's token, to call functions in trio's thread. It sees no step of any task."""

    def __init__(self) -> None:
        self.token: trio.lowlevel.TrioToken | None = None

    def before_run(self) -> None:
        self.token = trio.lowlevel.current_trio_token()

    def tasks(self) -> int:
        """Return the number of trio's tasks; 0 before and after trio runs."""
        if self.token is None:
            return 0
        with suppress(trio.RunFinishedError):
            return len(trio.from_thread.run_sync(all_tasks, trio_token=self.token))
        return 0


def _snapshot(holder: _TokenHolder) -> Json:
    """Return the kilobytes of memory, and the numbers of things that the process holds.

    `blocks` is Python's count of allocated blocks, without garbage. It shows a leak of one object
    a job before the memory grows. The collection of garbage changes the other values, so it is
    last.
    """
    snapshot = {
        "memory": memory_of("self"),
        "descriptors": _descriptors(),
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - names are enough
        "tasks": holder.tasks(),
    }
    gc.collect()
    return {**snapshot, "blocks": sys.getallocatedblocks()}


def _descriptors() -> dict[str, int]:
    """Return the number of descriptors by name without digits, except the fork server's sockets."""
    kinds: Counter[str] = Counter()
    others = fork_server_sockets()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if found not in others:
                kinds[re.sub(r"\d+", "", found)] += 1
    return dict(kinds)


def _answer(listening: socket.socket, snapshot_of: TakeSnapshot) -> None:
    while True:
        connection, _ = listening.accept()
        with connection, suppress(BrokenPipeError):
            connection.sendall(json.dumps(snapshot_of()).encode())


def main(arguments: list[str]) -> int:
    """Run the daemon with the arguments that follow the socket's path."""
    path, *words = arguments
    holder = _TokenHolder()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    snapshot_of = partial(_snapshot, holder)
    threading.Thread(target=_answer, args=(listening, snapshot_of), daemon=True).start()
    trio.run = partial(trio.run, instruments=(holder,))  # type: ignore[assignment]
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
