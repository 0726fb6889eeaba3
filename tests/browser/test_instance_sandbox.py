"""A real Chromium's sandbox and memory, as daemons of several users and capabilities read them."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path

import pytest
import trio

import smartlinkd
from smartlinkd.browser.page import Page

pytestmark = pytest.mark.chromium

LOOK = """
import os, sys, trio
from smartlinkd.browser.cdp import connect
from smartlinkd.browser.chromium import is_sandboxed
from smartlinkd.processes.reaper import memory_of_tree

endpoint, user = sys.argv[1], int(sys.argv[2])

async def main():
    async with connect(endpoint) as connection:
        if user:  # late: it may not be able to read Python any more
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        print(await is_sandboxed(connection))
        processes = (await connection.browser.call("SystemInfo.getProcessInfo"))["processInfo"]
        (chromium,) = (process["id"] for process in processes if process["type"] == "browser")
        print(memory_of_tree(chromium) > 50_000_000)

trio.run(main)
"""
CONTAINER = "-all,+chown,+dac_override,+fowner,+kill,+setgid,+setuid"
NOBODY = str(pwd.getpwnam("nobody").pw_uid)


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="takes root, and setpriv"
)
@pytest.mark.parametrize(
    ("before", "user"),
    [
        pytest.param([], NOBODY, id="Chromium's own user"),
        pytest.param([], "0", id="root"),
        pytest.param(["setpriv", f"--bounding-set={CONTAINER}"], "0", id="root in a container"),
    ],
)
async def test_sandbox_and_memory_are_readable_for_each_daemon(
    before: list[str], user: str, shared_endpoint: str, page: Page
) -> None:
    looked = await trio.run_process(
        [*before, sys.executable, "-c", LOOK, shared_endpoint, user],
        cwd=Path(smartlinkd.__file__).parents[1],
        capture_stdout=True,
    )
    assert looked.stdout == b"True\nTrue\n"
