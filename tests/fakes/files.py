"""Private files, folders that cannot be written, and a disk on which fsync of a folder fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Nothing can be written to the folder: it has another name while the block runs."""
    elsewhere = folder.rename(folder.with_name("elsewhere"))
    yield
    elsewhere.rename(folder)


def write_private(path: Path, content: bytes | str) -> Path:
    """Write the file with mode 0600, replacing its content. Return the path."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)
    return path


def fail_folder_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fsync of folders fail with EIO; fsync of files works."""
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
