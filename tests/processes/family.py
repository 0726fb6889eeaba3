"""A command that does nothing, and what /proc tells of processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from smartlinkd.processes.process_tree import ProcessTree, run_process_tree
from tests.hygiene.folder import FOLDER

SLEEP = ("/bin/sleep", "1000")


@asynccontextmanager
async def sleeping() -> AsyncIterator[ProcessTree]:
    async with run_process_tree(SLEEP, environment={}, working_folder=FOLDER) as tree:
        yield tree


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


def stat(pid: int) -> list[str]:
    """Return the fields from its state on; proc(5)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return text.rpartition(")")[2].split()
