"""The folder of a command that has ended is removed, whatever the command did to it."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import smartlinkd
from smartlinkd.processes.process_tree import (
    Limits,
    run_process_tree,
    shared_fork_server,
)
from smartlinkd.processes.reaper import remove_folder
from tests.processes.family import SLEEP, parent
from tests.shortage import Shortage

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user")

AS_NOBODY = """
import os, sys
from smartlinkd.processes.reaper import remove_folder

os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
sys.exit(remove_folder(os.fsencode(sys.argv[1])) or 0)
"""
TREE_AS_NOBODY = """
import os, sys
from pathlib import Path
import trio
from smartlinkd.processes.process_tree import run_process_tree

async def main():
    async with run_process_tree(
        ["a\\ud800"], environment={}, working_folder=Path("/"), remove=Path(sys.argv[1])
    ):
        pass

os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
try:
    trio.run(main)
except ValueError:  # it cannot be encoded, so there is no reaper
    sys.exit(Path(sys.argv[1]).exists() and "it is left")
"""


@pytest.fixture
def protected(open_folder: Path) -> Path:
    """A folder of nobody's that is write-protected, and what it holds is, too."""
    folder, other = open_folder / "its", open_folder / "other"
    inner = folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    other.mkdir()
    (folder / "a" / "link").symlink_to(other)
    nobody = pwd.getpwnam("nobody").pw_uid
    for path in (open_folder, other, folder, folder / "a", inner, inner / "file"):
        os.chown(path, nobody, nobody)
    inner.chmod(0o000)
    (folder / "a").chmod(0o500)
    folder.chmod(0o500)
    other.chmod(0o500)
    return folder


def as_nobody(code: str, folder: Path) -> str:
    """Run this with that folder. What it says of what is left."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(pwd.getpwnam("nobody").pw_uid)],
        cwd=Path(smartlinkd.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stderr.strip()


@as_root
@pytest.mark.parametrize("code", [AS_NOBODY, TREE_AS_NOBODY])
def test_write_protected_folders_are_removed(protected: Path, code: str) -> None:
    assert as_nobody(code, protected) == ""
    assert not protected.exists()
    assert (protected.parent / "other").stat().st_mode & 0o777 == 0o500


@as_root
def test_entry_that_cannot_be_removed_keeps_no_other(protected: Path) -> None:
    kept = protected / "a" / "kept"
    kept.mkdir()
    (kept / "by root").touch()
    told = as_nobody(AS_NOBODY, protected)
    assert told.startswith("the folder cannot be removed: [Errno 1]")
    left = [str(path.relative_to(protected)) for path in sorted(protected.rglob("*"))]
    assert left == ["a", "a/kept", "a/kept/by root"]


def test_folder_that_is_too_deep_is_reported_or_removed(open_folder: Path) -> None:
    """Or gone: newer Pythons walk through any."""
    folder = open_folder / "its"
    deep = "/".join(sys.getrecursionlimit() * "x")
    subprocess.run(["mkdir", "-p", folder / deep], check=True)
    try:
        told = remove_folder(os.fsencode(folder))
        assert folder.exists() is ("recursion" in told)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


async def test_start_without_a_descriptor_leaves_no_folder(
    open_folder: Path, shortage: Shortage
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    with shortage(), pytest.raises(OSError, match="Too many open files"):
        async with run_process_tree(["true"], environment={}, working_folder=folder, remove=folder):
            pass
    assert not folder.exists()


async def test_folder_is_removed_as_soon_as_there_is_a_thread_for_it(
    open_folder: Path, no_thread: Shortage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", "/no/such/python")  # so there is no reaper

    async def fail_to_start() -> None:
        with pytest.raises(FileNotFoundError):
            async with run_process_tree(
                SLEEP, environment={}, working_folder=Path("/"), remove=folder
            ):
                raise AssertionError("it was started")

    async with trio.open_nursery() as nursery:
        with no_thread():
            nursery.start_soon(fail_to_start)
            await wait_all_tasks_blocked()
            assert folder.exists()
    assert not folder.exists()


async def test_folder_that_its_command_removed_is_not_left_over(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    tidy = ["/bin/sh", "-c", 'trap \'rm -r "$TMPDIR"\' EXIT; echo x > "$TMPDIR/file"']
    variables = {"TMPDIR": str(folder), "PATH": os.defpath}
    async with run_process_tree(
        tidy, environment=variables, working_folder=folder, remove=folder
    ) as command:
        assert (await command.wait()).code == 0
    assert not folder.exists()
    assert not caplog.records


async def test_folder_is_removed_after_a_reaper_that_takes_too_long(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    files = 5000  # which takes so long that it is stopped meanwhile
    for number in range(files):
        (folder / str(number)).touch()
    async with (
        shared_fork_server(Limits(leave=0.1)),
        run_process_tree(SLEEP, environment={}, working_folder=folder, remove=folder) as tree,
    ):
        reaper = parent(tree.pid)
        tree.kill()
        with trio.fail_after(20):
            while len(list(folder.iterdir())) == files:
                await trio.lowlevel.checkpoint()
        os.kill(reaper, signal.SIGSTOP)
    assert caplog.messages == ["sleep: its guardian does not end and is killed"]
    assert not folder.exists()
