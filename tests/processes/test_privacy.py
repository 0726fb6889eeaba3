"""What another process of the same user can see of one that is private, and what still works in it.

As root the processes here run as nobody: root may look into everything.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534
AS_ROOT = os.geteuid() == 0

# Root's Python may be in a folder that is closed to others, so nobody cannot be its user from the
# start. A process that changes its user is not dumpable any more; one that has just begun is. What
# pydantic reads for its first model is read before that, as the daemon's configuration has it done.
BEGIN = f"""
import os, subprocess, sys, tempfile
from datetime import UTC, datetime
from pathlib import Path
import trio
from smartlinkd.admin.control_socket import Control, call, plain
from smartlinkd.processes.guardian import prctl
from smartlinkd.processes.privacy import PR_SET_DUMPABLE, keep_private
from smartlinkd.vault.record import CookieRecord, RecordMemory
CookieRecord.model_rebuild()
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
prctl(PR_SET_DUMPABLE, 1)
"""
WAIT = """
print("up", flush=True)
sys.stdin.read()
"""

Start = Callable[[str], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(program)`: its process id, once it is up. It has a secret in its environment."""
    with ExitStack() as running:

        def begin(program: str) -> int:
            process = running.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", BEGIN + program + WAIT],
                    cwd=ROOT,
                    env={"SECRET": "hunter2"},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            return process.pid

        yield begin


def of_same_user(command: str) -> subprocess.CompletedProcess[str]:
    """What a shell of the same user says to a command."""
    return subprocess.run(
        ["/bin/sh", "-c", command],
        user=NOBODY if AS_ROOT else None,
        group=NOBODY if AS_ROOT else None,
        extra_groups=[] if AS_ROOT else None,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_process_is_open_to_its_user_at_first(start: Start) -> None:
    pid = start("")
    assert "hunter2" in of_same_user(f"cat /proc/{pid}/environ").stdout
    assert of_same_user(f"ls /proc/{pid}/fd").stdout.split()[:3] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "look",
    ["cat /proc/{}/environ", ": </proc/{}/mem", "ls /proc/{}/fd", "cat /proc/{}/maps"],
)
def test_a_private_one_is_closed_to_its_user(start: Start, look: str) -> None:
    seen = of_same_user(look.format(start("keep_private()")))
    assert seen.stdout == ""
    assert "Permission denied" in seen.stderr


def test_what_everybody_may_know_of_it_stays_known(start: Start) -> None:
    pid = start("keep_private()")
    assert "VmRSS" in of_same_user(f"cat /proc/{pid}/status").stdout


WORKS = """
keep_private()

async def greet():
    return {}

async def check_control_socket():
    with tempfile.TemporaryDirectory() as folder:
        async with trio.open_nursery() as nursery:
            await nursery.start(Control(Path(folder), {"greet": plain(greet)}).run)
            assert (await call(Path(folder), "greet"))["ok"]
            nursery.cancel_scope.cancel()

def check_memory():
    memory = RecordMemory()
    memory.write(CookieRecord(cookie_text="a=b", account_name="", synced_at=datetime.now(UTC)))
    assert memory.read().cookie_text == "a=b"
    memory.close()

def check_child():
    shown = subprocess.run(["/bin/cat", "/proc/self/environ"], capture_output=True, check=True)
    assert b"hunter2" in shown.stdout

trio.run(check_control_socket)
check_memory()
check_child()
"""


def test_its_own_ways_through_proc_stay_open_to_itself_and_programs_begin_open(
    start: Start,
) -> None:
    assert start(WORKS)
