"""The daemon itself is killed: its guardians end what they guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import daemon
from tests.processes.family import parent, running

Until = Callable[[Callable[[], bool]], Awaitable[None]]

DAEMON = """
import sys, trio
from pathlib import Path
from daemon.processes.guarded import guarded

async def main():
    folder = Path(sys.argv[1])
    async with guarded(
        ["/bin/sh", "-c", "setsid sleep 1000 & echo $! > child; exec sleep 1000"],
        environment={"PATH": "/usr/bin:/bin"}, working_folder=folder, remove=folder,
    ) as process:
        print(process.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_a_killed_daemon_leaves_no_process_and_no_folder(
    open_folder: Path, until: Until
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    with subprocess.Popen(  # noqa: ASYNC220 - it takes a millisecond
        [sys.executable, "-c", DAEMON, str(folder)],
        cwd=Path(daemon.__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    ) as victim:
        assert victim.stdout is not None
        command = int(victim.stdout.readline())
        child_file = folder / "child"
        await until(lambda: child_file.exists() and child_file.read_text().strip() != "")
        child = int(child_file.read_text())
        guardian = parent(command)
        family = (command, child, guardian, parent(guardian))
        os.kill(victim.pid, signal.SIGKILL)
        await until(lambda: not any(map(running, family)))
        await until(lambda: not folder.exists())
