"""A command that does nothing, who is whose child, and who is there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from smartlinkd.processes.guarded import Guarded, Limits, User, guarded
from tests.hygiene.folder import FOLDER

SLEEP = ("/bin/sleep", "1000")


@asynccontextmanager
async def sleeping(
    *, user: User | None = None, limits: Limits | None = None
) -> AsyncIterator[Guarded]:
    async with guarded(
        SLEEP, environment={}, working_folder=FOLDER, user=user, limits=limits, again=True
    ) as process:
        yield process


def server_of(process: Guarded) -> int:
    return parent(parent(process.pid))


def alive(pid: int) -> bool:
    """Whether there is such a process, zombies included."""
    return Path(f"/proc/{pid}").exists()


def running(pid: int) -> bool:
    """As `alive`, but for a zombie that is another process's to reap."""
    try:
        return stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    return int(stat(pid)[1])


def stat(pid: int) -> list[str]:
    """From its state on; proc(5)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return text.rpartition(")")[2].split()
