"""The daemon, with an observer in its process: `python -m tests.soak.observed SOCKET serve …`.

The daemon lets no other process look into it but root's, and nobody outside can see trio's tasks or
Python's memory. So the soak runs the daemon's own `main` here, unchanged, with one thread beside it
that answers at a unix socket how the process is at that moment. The thread sleeps in `accept` in
between, and allocates nothing that stays; nothing of the daemon knows of it.

Rejected: a flag or an endpoint in the daemon. What is measured ought to be what is shipped.
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
Show = Callable[[], Json]


class _Inside(trio.abc.Instrument):
    """Knows how to ask in trio's own thread, once it runs. Sees no step of any task."""

    def __init__(self) -> None:
        self.token: trio.lowlevel.TrioToken | None = None

    def before_run(self) -> None:
        self.token = trio.lowlevel.current_trio_token()

    def tasks(self) -> int:
        """Trio's tasks that are alive; 0 before there are any and when there are none any more."""
        if self.token is None:
            return 0
        with suppress(trio.RunFinishedError):
            return len(trio.from_thread.run_sync(all_tasks, trio_token=self.token))
        return 0


def _seen(inside: _Inside) -> Json:
    """The process as it is: kilobytes of memory, and what it holds.

    `blocks` is Python's own count of what it has allocated and not freed, garbage left out: a leak
    of one object a job shows there long before it takes another page. It comes last, since looking
    for garbage changes what there is to be seen.
    """
    seen = {
        "memory": memory_of("self"),
        "descriptors": _descriptors(),
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208 - names are enough
        "tasks": inside.tasks(),
    }
    gc.collect()
    return {**seen, "blocks": sys.getallocatedblocks()}


def _descriptors() -> dict[str, int]:
    """Open descriptors by kind: their names without numbers. But for the fork server's."""
    kinds: Counter[str] = Counter()
    others = fork_server_sockets()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):  # that of the listing itself
            found = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if found not in others:
                kinds[re.sub(r"\d+", "", found)] += 1
    return dict(kinds)


def _answer(listening: socket.socket, show: Show) -> None:
    while True:
        connection, _ = listening.accept()
        with connection, suppress(BrokenPipeError):
            connection.sendall(json.dumps(show()).encode())


def main(arguments: list[str]) -> int:
    """Run the daemon's command that stands behind the socket's path."""
    path, *words = arguments
    inside = _Inside()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    show = partial(_seen, inside)
    threading.Thread(target=_answer, args=(listening, show), daemon=True).start()
    trio.run = partial(trio.run, instruments=(inside,))  # type: ignore[assignment]
    return cli.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
