"""Work on a thread at the kernel's limit of threads, in a new process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from smartlinkd.threads import on_thread

AT_THE_LIMIT = """
import os, resource, trio
from smartlinkd.threads import NoThread, on_thread

if os.geteuid() == 0:  # whom the limit does not hold
    os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

async def ask():
    try:
        await on_thread(print, "was done")
    except NoThread as refusal:
        print(refusal.retry_after, refusal)

trio.run(ask)
"""


def test_work_without_a_free_thread_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_THE_LIMIT], capture_output=True, text=True, check=True
    )

    assert done.stdout == (
        "5 the daemon cannot start a thread: as many tasks run as the system lets it have; "
        "try again shortly\n"
    )
    assert done.stderr == (
        "no thread can be started: TasksMax, or a limit of the kernel's, is reached\n"
    )


async def test_error_of_the_work_is_raised_unchanged() -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match=r"^a bug$"):
        await on_thread(fail)
