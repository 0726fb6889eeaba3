"""The state directory is used by one daemon at a time; its files are whole, private and durable."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from smartlinkd.errors import Unavailable
from smartlinkd.logs import LogEvent
from smartlinkd.state_files import (
    LOCK_NAME,
    NotSaved,
    StateUnusable,
    claim,
    load_secret,
    read_private,
    replace_file,
    saving,
)
from tests.fakes.files import fail_folder_fsync, write_private

HOLD = """
import sys, pathlib
from smartlinkd.state_files import claim
with claim(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_held(directory: Path) -> bool:
    try:
        with claim(directory):
            return False
    except StateUnusable:
        return True


def test_a_missing_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "var" / "state"
    with claim(directory):
        assert mode(directory) == 0o700
        assert mode(directory / LOCK_NAME) == 0o600


def test_existing_directory_keeps_its_mode_and_files(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("kept")
    tmp_path.chmod(0o775)
    with claim(tmp_path):
        assert mode(tmp_path) == 0o775
    assert (tmp_path / "auth.json").read_text() == "kept"


def test_directory_is_free_after_the_block(tmp_path: Path) -> None:
    def fail_within() -> None:
        with claim(tmp_path):
            assert is_held(tmp_path)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within()
    assert not is_held(tmp_path)


def test_directory_is_free_after_its_holder_was_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        text = f"another daemon is using {tmp_path};"
        with pytest.raises(StateUnusable, match=text), claim(tmp_path):
            pytest.fail("it was given out twice")
        holder.kill()
    with claim(tmp_path):
        pass


def test_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    with claim(tmp_path):
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=False,
        )
        assert child.stdout is not None
        child.stdout.readline()
        assert is_held(tmp_path)
    with child:
        assert not is_held(tmp_path)


@pytest.mark.parametrize("place", ["below a file", "not to be written"])
def test_unusable_directory_is_an_error_that_names_it(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.touch()
    # Root may write anywhere, but nobody can make files in /proc/self.
    directory = file / "state" if place == "below a file" else Path("/proc/self")
    text = r"^state\.directory: .* cannot be used \(.*writable .*ReadWritePaths="
    with pytest.raises(StateUnusable, match=text), claim(directory):
        pytest.fail("it was given out")


# Reading a file


@pytest.mark.parametrize("bits", [0o600, 0o400, 0o700])
def test_a_private_file_is_read_up_to_its_bound(bits: int, tmp_path: Path) -> None:
    path = write_private(tmp_path / "file", "content")
    path.chmod(bits)

    assert read_private(path, most=7) == b"content"
    assert read_private(path, most=6) == b"conten"


def test_missing_file_is_none_and_an_empty_one_is_not(tmp_path: Path) -> None:
    assert read_private(tmp_path / "file", most=1) is None
    assert read_private(write_private(tmp_path / "file", ""), most=1) == b""


@pytest.mark.parametrize("bits", [0o604, 0o602, 0o640, 0o620, 0o601, 0o610])
def test_a_file_open_to_others_is_refused(bits: int, tmp_path: Path) -> None:
    path = write_private(tmp_path / "file", "content")
    path.chmod(bits)

    with pytest.raises(StateUnusable) as refused:
        read_private(path, most=7)

    assert str(refused.value) == (
        f"{path} is open to other users: run `chmod 600 {path}`, and if one of them may have "
        "read it, delete it and set up again"
    )


def test_unreadable_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StateUnusable) as refused:
        read_private(tmp_path, most=1)

    assert str(refused.value) == (
        f"{tmp_path} cannot be read: Is a directory; let the daemon's user read it"
    )


# Replacing a file


def test_left_over_new_file_is_replaced(tmp_path: Path) -> None:
    left = write_private(tmp_path / ".file.new", "half of a long new content")
    left.chmod(0o644)

    replace_file(tmp_path / "file", b"new")

    assert (tmp_path / "file").read_bytes() == b"new"
    assert mode(tmp_path / "file") == 0o600
    assert not left.exists()


def test_symbolic_link_at_the_new_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = write_private(tmp_path / "elsewhere", "precious")
    (tmp_path / ".file.new").symlink_to(elsewhere)

    with pytest.raises(NotSaved):
        replace_file(tmp_path / "file", b"new")

    assert elsewhere.read_bytes() == b"precious"


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_file_is_private_from_the_first_whatever_the_umask(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_first, fchmod = [], os.fchmod

    def record_and_fchmod(descriptor: int, bits: int) -> None:
        at_first.append(os.fstat(descriptor).st_mode & 0o077)
        fchmod(descriptor, bits)

    monkeypatch.setattr(os, "fchmod", record_and_fchmod)
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "file", b"new")
    finally:
        os.umask(before)

    assert mode(tmp_path / "file") == 0o600
    assert at_first == [0]


def test_the_content_and_then_the_name_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    path = tmp_path / "file"

    def fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        there = (tmp_path / ".file.new").read_bytes() if name == ".file.new" else b""
        steps.append(f"{name} {there!r} {path.exists()}")

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(path, b"new")

    assert steps == [".file.new b'new' False", f"{tmp_path.name} b'' True"]


def test_a_full_disk_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_private(tmp_path / "file", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotSaved) as refused:
        replace_file(path, b"new")

    assert str(refused.value) == f"{path} could not be written: No space left on device"
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_fsync_of_the_directory_raises_oserror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_private(tmp_path / "file", "old")
    fail_folder_fsync(monkeypatch)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="Input/output error"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_failed_write_is_logged_and_is_unavailable_for_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unavailable) as refused, saving():
        replace_file(tmp_path / "gone" / "file", b"new")

    assert str(refused.value) == (
        "the daemon could not write to its state directory, so nothing was changed; "
        "see its log, make room, and try again"
    )
    assert refused.value.retry_after == 30
    assert caplog.record_tuples == [
        (
            "smartlinkd.state_files",
            logging.ERROR,
            f"{tmp_path}/gone/file could not be written: No such file or directory",
        )
    ]


@pytest.mark.parametrize(
    ("error", "full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)]
)
def test_a_full_disk_is_an_event(
    error: int, full: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unavailable), saving():
        raise NotSaved("no") from OSError(error, "x")
    (record,) = caplog.records
    assert getattr(record, "event", None) is (LogEvent.DISK_FULL if full else None)


def test_unknown_state_of_the_disk_is_not_reported_as_unchanged() -> None:
    with pytest.raises(OSError, match="Input/output error"), saving():
        raise OSError(5, "Input/output error")


# Secrets


def secret_in(directory: Path) -> bytes:
    found = load_secret(directory / "key", name="the key", loss="ends every lock")
    return found.get_secret_value()


def test_a_secret_is_made_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    made = secret_in(tmp_path)

    assert len(made) == 32
    assert secret_in(tmp_path) == made
    assert mode(tmp_path / "key") == 0o600
    assert caplog.messages == [f"made the key {tmp_path}/key"]


@pytest.mark.parametrize("blanks", ["", "\n", "\r\n"])
def test_secret_of_the_owner_is_read(blanks: str, tmp_path: Path) -> None:
    write_private(tmp_path / "key", "0aF0" * 16 + blanks)

    assert secret_in(tmp_path) == bytes.fromhex("0af0" * 16)


@pytest.mark.parametrize(
    "content",
    [
        *("", "0aF0" * 15, "0aF0" * 16 + "00", "0aG0" * 16),
        *(b"\xff" * 64, bytes(range(32)), b"0" * 100_000),
    ],
    ids=lambda content: repr(content[:5]),
)
def test_invalid_secret_is_refused(content: str | bytes, tmp_path: Path) -> None:
    path = write_private(tmp_path / "key", content)

    with pytest.raises(StateUnusable) as refused:
        secret_in(tmp_path)

    assert str(refused.value) == (
        f"{path} must hold 64 hexadecimal digits: restore it from a backup, or delete it, "
        "which makes a new one and ends every lock"
    )
