"""Commands to run, and what /proc tells of processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from smartlinkd.processes.process_tree import ProcessTree, run_process_tree
from tests.hygiene.folder import FOLDER
from tests.hygiene.processes import stat

ROOT = Path("/")
SLEEP = ("/bin/sleep", "1000")
Until = Callable[[Callable[[], bool]], Awaitable[None]]


def run(*command: str, **options: Any) -> AbstractAsyncContextManager[ProcessTree]:
    """Run a command, in the root folder and with a PATH alone unless `options` say otherwise."""
    given: dict[str, Any] = {"environment": {"PATH": "/usr/bin:/bin"}, "working_folder": ROOT}
    return run_process_tree(command, **given | options)


def shell(script: str, **options: Any) -> AbstractAsyncContextManager[ProcessTree]:
    return run("/bin/sh", "-c", script, **options)


def sleeping() -> AbstractAsyncContextManager[ProcessTree]:
    return run(*SLEEP, working_folder=FOLDER)


def server_of(tree: ProcessTree) -> int:
    return parent(parent(tree.pid))


def alive(pid: int) -> bool:
    """Return True if there is such a process, zombies included."""
    return Path(f"/proc/{pid}").exists()


def running(pid: int) -> bool:
    """Return `alive`, except for a zombie that another process has to reap."""
    try:
        return stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    return int(stat(pid)[1])


def is_there(folder: Path) -> bool:
    return folder.exists()
