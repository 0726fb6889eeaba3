"""The daemon with an observer in its process: `python -m tests.soak.observed SOCKET serve …`.

Trio's tasks cannot be seen from another process. This module runs the daemon's own `main`, and a
thread that answers each connection to a Unix socket with a snapshot.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import threading
from contextlib import suppress
from functools import partial

import trio

from smartlinkd import cli
from tests.hygiene.fork_server import fork_server_sockets
from tests.hygiene.tasks import all_tasks
from tests.soak.memory import allocated, memory_of


class _TokenHolder(trio.abc.Instrument):
    """Keeps trio's token, to call functions in trio's thread. It sees no step of any task."""

    def __init__(self) -> None:
        self.token: trio.lowlevel.TrioToken | None = None

    def before_run(self) -> None:
        self.token = trio.lowlevel.current_trio_token()


def _snapshot(token: trio.lowlevel.TrioToken) -> dict[str, float]:
    """Return kilobytes of memory, and the numbers of things that the process holds."""
    snapshot = {
        "private": memory_of("self"),
        "descriptors": _descriptors(),
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - names are enough
        "tasks": len(trio.from_thread.run_sync(all_tasks, trio_token=token)),
    }
    gc.collect()  # so that no garbage is counted below, nor in the next snapshot
    return {**snapshot, "objects": sys.getallocatedblocks(), "allocated": allocated()}


def _descriptors() -> int:
    """Return the number of descriptors, except the fork server's sockets."""
    others, count = fork_server_sockets(), 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            count += os.readlink(f"/proc/self/fd/{name}") not in others  # noqa: PTH115
    return count


def _answer(listening: socket.socket, holder: _TokenHolder) -> None:
    while True:
        connection, _ = listening.accept()
        with connection, suppress(BrokenPipeError):
            assert holder.token is not None, "the daemon serves before it is sampled"
            connection.sendall(json.dumps(_snapshot(holder.token)).encode())


def main(arguments: list[str]) -> int:
    """Run the daemon with the arguments that follow the socket's path."""
    path, *words = arguments
    holder = _TokenHolder()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    threading.Thread(target=_answer, args=(listening, holder), daemon=True).start()
    trio.run = partial(trio.run, instruments=(holder,))  # type: ignore[assignment]
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
