"""The daemon itself is killed: its reapers end their trees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import smartlinkd
from tests.processes.family import parent, running

Until = Callable[[Callable[[], bool]], Awaitable[None]]

DAEMON = """
import sys, trio
from pathlib import Path
from smartlinkd.processes.process_tree import run_process_tree

async def main():
    folder = Path(sys.argv[1])
    async with run_process_tree(
        ["/bin/sh", "-c", "setsid sleep 1000 & echo $! > child; exec sleep 1000"],
        environment={"PATH": "/usr/bin:/bin"}, working_folder=folder, remove=folder,
    ) as process:
        print(process.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@contextmanager
def running_daemon(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The daemon, and the process id of its command."""
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(folder)],
        cwd=Path(smartlinkd.__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        yield victim, int(victim.stdout.readline())


async def number_in(file: Path, until: Until) -> int:
    def said() -> str:
        return file.read_text().strip() if file.exists() else ""

    await until(lambda: said() != "")
    return int(said())


async def test_killed_daemon_leaves_no_process_and_no_folder(
    open_folder: Path, until: Until
) -> None:
    folder = open_folder / "its"
    with running_daemon(folder) as (victim, command):
        child = await number_in(folder / "child", until)
        reaper = parent(command)
        family = (command, child, reaper, parent(reaper))
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: not any(map(running, family)))
        await until(lambda: not folder.exists())


def times_woken(pid: int) -> float:
    """How often it had something to wait for that came; proc(5). One that has gone: for ever."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return inf
    (count,) = (line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches"))
    return int(count)


async def test_reaper_that_is_killed_after_its_daemon_leaves_no_process(
    open_folder: Path, until: Until
) -> None:
    """The fork server waits a while for a reaper that has not ended."""
    folder = open_folder / "its"
    with running_daemon(folder) as (victim, command):
        child = await number_in(folder / "child", until)
        reaper = parent(command)
        server = parent(reaper)
        os.kill(reaper, signal.SIGSTOP)
        woken = times_woken(server)
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: times_woken(server) > woken + 5)  # it looks again and again
        os.kill(reaper, signal.SIGKILL)
        await until(lambda: not any(map(running, (command, child, reaper, server))))
