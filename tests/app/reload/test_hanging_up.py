"""SIGHUP: who waits for it, who is told, and what a part that is busy costs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import trio

from smartlinkd.systemd.environment import SystemdEnvironment
from tests.app.reload.played import PATIENCE, Daemon, running

HANGING_UP = """
import os, signal, subprocess
from smartlinkd.app.reload import ignore_hangup
signal.signal(signal.SIGHUP, signal.SIG_DFL)
try:
    with ignore_hangup():
        os.kill(os.getpid(), signal.SIGHUP)
        print(subprocess.run(["/bin/sh", "-c", "kill -HUP $$"]).returncode, flush=True)
        raise KeyError
except KeyError:
    os.kill(os.getpid(), signal.SIGHUP)
print("still here")
"""


def test_where_nobody_waits_for_it_a_hangup_ends_nothing_but_what_was_started() -> None:
    """And after the block it is what it was before."""
    ended = subprocess.run(
        [sys.executable, "-c", HANGING_UP], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGHUP, f"{-signal.SIGHUP}\n")


async def test_the_service_manager_is_told(daemon: Daemon) -> None:
    daemon.write()
    manager = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    place = str(daemon.folder / "notify")
    with manager:
        await manager.bind(place)
        async with running(daemon, SystemdEnvironment(notify_socket=place)):
            await daemon.hang_up()
            said: list[str] = []
            with trio.fail_after(PATIENCE):
                while not any(each.startswith("RELOADING=1\nMONOTONIC_USEC=") for each in said):
                    said.append((await manager.recv(4096)).decode())
                while said[-1] != "READY=1":
                    said.append((await manager.recv(4096)).decode())
