"""SIGHUP: who waits for it, who is told, and what a part that is busy costs."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.app import reload
from smartlinkd.errors import Unavailable
from smartlinkd.supervision.actor import ActorGone
from smartlinkd.systemd.environment import SystemdEnvironment
from tests.app.reload.played import PATIENCE, Daemon, running


async def test_a_part_that_cannot_take_its_share_is_asked_again_when_it_said(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    asked: list[float] = []

    async def take() -> None:
        asked.append(trio.current_time())
        if len(asked) < 3:
            raise Unavailable("the disk is full", retry_after=30)

    waits: list[float] = []
    await reload._until_taken(take, lambda: waits.append(trio.current_time()))
    assert waits == asked[:2]
    assert [at - asked[0] for at in asked] == [0, 30, 60]
    text = "a change is in force in part, and the rest has to wait: the disk is full"
    assert caplog.messages == [text] * 2
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


async def test_a_part_that_is_gone_for_good_is_not_waited_for() -> None:
    async def take() -> None:
        raise ActorGone("it has ended", retry_after=1)

    with trio.fail_after(PATIENCE):
        await reload._until_taken(take, lambda: None)


HANGING_UP = """
import os, signal, subprocess
from smartlinkd.app.reload import never_ended_by_hangup
signal.signal(signal.SIGHUP, signal.SIG_DFL)
try:
    with never_ended_by_hangup():
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
