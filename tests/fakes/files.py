"""Files as the daemon keeps them, and a disk that loses their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def write_private(path: Path, content: bytes | str) -> Path:
    """Write it as its owner's alone, whatever was there."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)
    return path


def lose_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on what a file holds gets to the disk, and what a folder holds may not have."""
    fsync = os.fsync

    def only_files(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
