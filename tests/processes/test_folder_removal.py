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
from smartlinkd.processes.process_tree import Limits, fork_server
from smartlinkd.processes.reaper import remove_folder
from tests.processes.family import SLEEP, is_there, parent, run, shell
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
def protected(its_folder: Path) -> Path:
    """A folder of nobody's that is write-protected, and what it holds is, too."""
    inner, other = its_folder / "a" / "b", its_folder.with_name("other")
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    other.mkdir()
    (its_folder / "a" / "link").symlink_to(other)
    nobody = pwd.getpwnam("nobody").pw_uid
    for path in (other.parent, other, its_folder, inner.parent, inner, inner / "file"):
        os.chown(path, nobody, nobody)
    inner.chmod(0o000)
    for path in (inner.parent, its_folder, other):
        path.chmod(0o500)
    return its_folder


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


def test_folder_that_is_too_deep_is_reported_or_removed(its_folder: Path) -> None:
    """Or gone: newer Pythons walk through any."""
    deep = "/".join(sys.getrecursionlimit() * "x")
    subprocess.run(["mkdir", "-p", its_folder / deep], check=True)
    try:
        told = remove_folder(os.fsencode(its_folder))
        assert its_folder.exists() is ("recursion" in told)
    finally:
        subprocess.run(["rm", "-rf", its_folder], check=True)


async def test_start_without_a_descriptor_leaves_no_folder(
    its_folder: Path, shortage: Shortage
) -> None:
    with shortage(), pytest.raises(OSError, match="Too many open files"):
        async with run("true", remove=its_folder):
            pass
    assert not is_there(its_folder)


async def test_folder_is_removed_as_soon_as_there_is_a_thread_for_it(
    its_folder: Path, no_thread: Shortage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")  # so there is no reaper

    async def fail_to_start() -> None:
        with pytest.raises(FileNotFoundError):
            async with run(*SLEEP, remove=its_folder):
                raise AssertionError("it was started")

    async with trio.open_nursery() as nursery:
        with no_thread():
            nursery.start_soon(fail_to_start)
            await wait_all_tasks_blocked()
            assert is_there(its_folder)
    assert not is_there(its_folder)


async def test_folder_that_its_command_removed_is_not_left_over(
    its_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tidy = 'trap \'rm -r "$TMPDIR"\' EXIT; echo x > "$TMPDIR/file"'
    variables = {"TMPDIR": str(its_folder), "PATH": os.defpath}
    async with shell(
        tidy, environment=variables, working_folder=its_folder, remove=its_folder
    ) as command:
        assert (await command.wait()).code == 0
    assert not is_there(its_folder)
    assert not caplog.records


async def test_folder_is_removed_after_a_reaper_that_takes_too_long(
    its_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = 5000  # which takes so long that it is stopped meanwhile
    for number in range(files):
        (its_folder / str(number)).touch()
    async with (
        fork_server(Limits(leave=0.1)),
        run(*SLEEP, working_folder=its_folder, remove=its_folder) as tree,
    ):
        reaper = parent(tree.pid)
        tree.kill()
        with trio.fail_after(20):
            while len(tuple(os.scandir(its_folder))) == files:
                await trio.lowlevel.checkpoint()
        os.kill(reaper, signal.SIGSTOP)
    assert caplog.messages == ["sleep: its reaper does not end and is killed"]
    assert not is_there(its_folder)
