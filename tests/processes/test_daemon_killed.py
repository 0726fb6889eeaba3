"""The daemon itself is killed: its reapers end their trees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path

import smartlinkd
from tests.processes.family import Until, parent, running

DAEMON = """
import sys, trio
from pathlib import Path
from smartlinkd.processes.process_tree import run_process_tree

async def main():
    folder = Path(sys.argv[1])
    async with run_process_tree(
        ["/bin/sh", "-c", "touch file; setsid sleep 1000 & echo $!; exec sleep 1000"],
        environment={"PATH": "/usr/bin:/bin"}, working_folder=folder, remove=folder,
    ) as process:
        while not process.stdout_tail.endswith("\\n"):
            await trio.sleep(0.01)
        print(process.pid, process.stdout_tail, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


@contextmanager
def running_daemon(folder: Path) -> Iterator[tuple[int, int, int]]:
    """The process ids of the daemon, of its command, and of a child of that one."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(folder)],
        cwd=Path(smartlinkd.__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        command, child = map(int, victim.stdout.readline().split())
        yield victim.pid, command, child


async def test_killed_daemon_leaves_no_process_and_no_folder(
    its_folder: Path, until: Until
) -> None:
    with running_daemon(its_folder) as (victim, command, child):
        reaper = parent(command)
        family = (command, child, reaper, parent(reaper))
        os.kill(victim, signal.SIGKILL)
        await until(lambda: not any(map(running, family)))
        await until(lambda: not its_folder.exists())


def times_woken(pid: int) -> float:
    """How often it had something to wait for that came; proc(5). One that has gone: for ever."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return inf
    (count,) = (line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches"))
    return int(count)


async def test_reaper_that_is_killed_after_its_daemon_leaves_no_process(
    its_folder: Path, until: Until
) -> None:
    """The fork server waits a while for a reaper that has not ended."""
    with running_daemon(its_folder) as (victim, command, child):
        reaper = parent(command)
        server = parent(reaper)
        os.kill(reaper, signal.SIGSTOP)
        woken = times_woken(server)
        os.kill(victim, signal.SIGKILL)
        await until(lambda: times_woken(server) > woken + 5)  # it looks again and again
        os.kill(reaper, signal.SIGKILL)
        await until(lambda: not any(map(running, (command, child, reaper, server))))
