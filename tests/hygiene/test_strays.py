"""Processes of ours that are no children of ours are found, whenever they are looked at."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hygiene import processes
from tests.hygiene.processes import Strays, command_of, end


@pytest.fixture
def orphan() -> Iterator[int]:
    told = subprocess.run(
        ["sh", "-c", "setsid sleep 1005 >&- & echo $!"], stdout=subprocess.PIPE, cwd="/", check=True
    )
    pid = int(told.stdout)
    while not command_of(pid).startswith("sleep"):  # within execve(2) it has none to show
        time.sleep(0.001)
    yield pid
    end(pid)


def test_it_is_found_while_it_is_alive(orphan: int) -> None:
    strays = Strays()
    assert orphan in strays.look()
    assert orphan in strays.look()
    os.kill(orphan, signal.SIGKILL)
    while orphan in strays.look():  # the test's deadline bounds it
        time.sleep(0.001)


def test_it_is_found_after_a_look_at_the_moment_in_which_it_has_no_command_yet(
    orphan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within execve(2) the kernel has neither a command line nor an environment to show."""
    strays = Strays()
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_read", _within_execve(orphan))
        assert orphan not in strays.look()
    assert orphan in strays.look()


def _within_execve(pid: int) -> object:
    hidden = (f"/proc/{pid}/cmdline", f"/proc/{pid}/environ")
    return lambda path: b"" if path in hidden else Path(path).read_bytes()


def test_the_kernels_threads_and_the_dead_are_no_reason_to_look_again() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes._is_becoming(child.pid)
    child.wait()
    assert not processes._is_becoming(2)
