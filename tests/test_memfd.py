"""A sealed file keeps its content for good, and is told from an unsealed one."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from smartlinkd.memfd import is_sealed, sealed_file

NAME = "smartlinkd-test-sealed"
ADD_SEALS, GET_SEALS = 1033, 1034  # linux/fcntl.h
SEAL, SHRINK, GROW, WRITE = 1, 2, 4, 8


def open_sealed_files() -> list[Path]:
    """Return this process's descriptors of files with the tests' name."""
    entries = Path("/proc/self/fd").iterdir()
    return [each for each in entries if NAME in os.fsdecode(os.path.realpath(each))]


def test_sealed_file_has_its_content_and_cannot_change() -> None:
    descriptor = sealed_file(NAME, b"content")
    try:
        assert os.pread(descriptor, 100, 0) == b"content"
        assert fcntl.fcntl(descriptor, GET_SEALS) == SEAL | SHRINK | GROW | WRITE
        assert is_sealed(descriptor)
        assert not os.get_inheritable(descriptor)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("seals", [0, SEAL | SHRINK | GROW, SHRINK | GROW | WRITE])
def test_file_without_all_seals_is_not_sealed(seals: int) -> None:
    descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        fcntl.fcntl(descriptor, ADD_SEALS, seals)
        assert not is_sealed(descriptor)
    finally:
        os.close(descriptor)


def test_file_that_cannot_be_sealed_raises_the_kernels_error(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="Invalid argument"):
        is_sealed(file.fileno())


@pytest.mark.parametrize("call", ["fcntl.fcntl", "os.fdopen"])
def test_failed_creation_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as broken:
        broken.setattr(call, fail)
        with pytest.raises(OSError, match="no"):
            sealed_file(NAME, b"content")
    assert open_sealed_files() == []
