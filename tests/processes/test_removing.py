"""The folder of a command that has ended is removed, whatever the command did to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import smartlinkd
from smartlinkd.processes import guarded as guarded_module
from smartlinkd.processes.guarded import Guarded, _see_removed, guarded, user_named
from smartlinkd.processes.removing import remove_folder
from tests.processes.family import SLEEP, parent
from tests.shortage import Shortage

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user")

AS_NOBODY = """
import os, sys
from smartlinkd.processes.removing import remove_folder

os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
sys.exit(remove_folder(os.fsencode(sys.argv[1])) or 0)
"""
GUARDED_AS_NOBODY = """
import os, sys
from pathlib import Path
import trio
from smartlinkd.processes.guarded import guarded

async def main():
    async with guarded([""], environment={}, working_folder=Path("/"), remove=Path(sys.argv[1])):
        pass

os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
try:
    trio.run(main)
except ValueError as fault:  # there is no such program, and so no guardian
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
    nobody = user_named("nobody").uid
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
        [sys.executable, "-c", code, str(folder), str(user_named("nobody").uid)],
        cwd=Path(smartlinkd.__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    return done.stderr.strip()


@as_root
@pytest.mark.parametrize("code", [AS_NOBODY, GUARDED_AS_NOBODY])
def test_a_folder_with_write_protected_ones_in_it_is_removed(protected: Path, code: str) -> None:
    assert as_nobody(code, protected) == ""
    assert not protected.exists()
    assert (protected.parent / "other").stat().st_mode & 0o777 == 0o500


@as_root
def test_what_cannot_be_removed_keeps_nothing_else(protected: Path) -> None:
    kept = protected / "a" / "kept"
    kept.mkdir()
    (kept / "by root").touch()
    told = as_nobody(AS_NOBODY, protected)
    assert told.startswith("the folder cannot be removed: [Errno 1]")
    left = [str(path.relative_to(protected)) for path in sorted(protected.rglob("*"))]
    assert left == ["a", "a/kept", "a/kept/by root"]


def test_a_folder_that_is_too_deep_is_told(open_folder: Path) -> None:
    """Or gone: newer Pythons walk through any."""
    folder = open_folder / "its"
    deep = "/".join(sys.getrecursionlimit() * "x")
    subprocess.run(["mkdir", "-p", folder / deep], check=True)
    try:
        told = remove_folder(os.fsencode(folder))
        assert folder.exists() is ("recursion" in told)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


async def test_what_cannot_be_started_for_want_of_a_descriptor_leaves_no_folder(
    open_folder: Path, shortage: Shortage
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    with shortage(), pytest.raises(OSError, match="Too many open files"):
        async with guarded(["true"], environment={}, working_folder=folder, remove=folder):
            pass
    assert not folder.exists()


async def test_with_no_thread_for_it_a_folder_is_removed_as_soon_as_there_is_one(
    open_folder: Path, no_thread: Shortage
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    async with trio.open_nursery() as removing:
        with no_thread():
            removing.start_soon(_see_removed, folder)
            await wait_all_tasks_blocked()
            assert folder.exists()
    assert not folder.exists()


async def test_a_folder_that_its_command_has_removed_is_nothing_left_over(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    tidy = ["/bin/sh", "-c", 'trap \'rm -r "$TMPDIR"\' EXIT; echo x > "$TMPDIR/file"']
    variables = {"TMPDIR": str(folder), "PATH": os.defpath}
    async with guarded(
        tidy, environment=variables, working_folder=folder, remove=folder
    ) as command:
        assert (await command.wait()).code == 0
    assert not folder.exists()
    assert not caplog.records


async def test_it_is_removed_without_its_guardian_also_when_the_block_was_cancelled(
    open_folder: Path,
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    with trio.CancelScope() as scope:
        async with guarded(
            SLEEP, environment={}, working_folder=Path("/"), remove=folder
        ) as command:
            os.kill(parent(command.pid), signal.SIGKILL)
            await command.wait()
            scope.cancel()
    assert not folder.exists()


async def test_a_guardian_that_takes_too_long_for_it_leaves_nothing_over(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = open_folder / "its"
    folder.mkdir()
    for number in range(5000):  # which takes so long that it is stopped in the midst of it
        (folder / str(number)).touch()
    note, stopped = Guarded._note, trio.Event()

    def stop_it(command: Guarded, what: str, about: str = "") -> None:
        note(command, what, about)
        if what == "removing":
            os.kill(command.guardian, signal.SIGSTOP)
            stopped.set()

    monkeypatch.setattr(Guarded, "_note", stop_it)
    monkeypatch.setattr(guarded_module, "LEAVE_LIMIT", 0.1)
    async with guarded(["true"], environment={}, working_folder=folder, remove=folder):
        with trio.fail_after(20):
            await stopped.wait()
    assert caplog.messages == ["true: its guardian does not end and is killed"]
    assert not folder.exists()


async def test_who_is_still_writing_to_it_does_not_keep_it(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed guardian guarded may be on its way out."""
    folder = open_folder / "its"
    written = [b"a", b"b", b"c"]

    def remove_and_find_more(named: bytes) -> str:
        remove_folder(named)
        if written:
            (folder / os.fsdecode(written.pop())).mkdir(parents=True)
        return ""

    monkeypatch.setattr(guarded_module, "remove_folder", remove_and_find_more)
    monkeypatch.setattr(guarded_module, "REMOVE_PAUSE", 0)
    folder.mkdir()
    with pytest.raises(ValueError, match="no program"):
        async with guarded([""], environment={}, working_folder=Path("/"), remove=folder):
            raise AssertionError("it was started")
    assert not written
    assert not folder.exists()
