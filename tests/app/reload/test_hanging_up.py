"""SIGHUP: who waits for it, who is told, and what a part that is busy costs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest
import trio

from smartlinkd.auth.actor import Auth
from smartlinkd.errors import Unavailable
from smartlinkd.systemd.environment import SystemdEnvironment
from tests.app.reload.played import OTHER_HASH, PATIENCE, Daemon, running

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


async def test_the_service_manager_is_told_and_does_not_wait_for_a_step_that_waits(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd sends no further SIGHUP to a service that is reloading."""
    daemon.write()
    manager = trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    place = str(daemon.folder / "notify")

    async def hear_of_a_reload() -> None:
        said = [""]
        with trio.fail_after(PATIENCE):
            while not said[-1].startswith("RELOADING=1\nMONOTONIC_USEC="):
                said.append((await manager.recv(4096)).decode())
            while said[-1] != "READY=1":
                said.append((await manager.recv(4096)).decode())

    async def no_room(*_: object) -> None:
        raise Unavailable("no room", retry_after=30)

    with manager:
        await manager.bind(place)
        async with running(daemon, SystemdEnvironment(notify_socket=place)):
            await daemon.hang_up()
            await hear_of_a_reload()
            monkeypatch.setattr(Auth, "change_password", no_room)
            daemon.write(auth={"password_hash": OTHER_HASH})
            os.kill(os.getpid(), signal.SIGHUP)
            await hear_of_a_reload()
            monkeypatch.undo()
