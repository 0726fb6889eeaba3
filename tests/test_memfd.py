"""A sealed file keeps its content for good."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from smartlinkd.memfd import sealed_file

NAME = "smartlinkd-test-sealed"
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def open_sealed_files() -> list[Path]:
    """Return this process's descriptors of files with the tests' name."""
    entries = Path("/proc/self/fd").iterdir()
    return [each for each in entries if NAME in os.fsdecode(os.path.realpath(each))]


def test_sealed_file_has_its_content_and_cannot_change() -> None:
    descriptor = sealed_file(NAME, b"content")
    try:
        assert os.pread(descriptor, 100, 0) == b"content"
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == SEALS
        assert not os.get_inheritable(descriptor)
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("call", ["fcntl.fcntl", "os.fdopen"])
def test_failed_creation_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "no")

    with monkeypatch.context() as broken:
        broken.setattr(call, fail)
        with pytest.raises(OSError, match="no"):
            sealed_file(NAME, b"content")
    assert open_sealed_files() == []
