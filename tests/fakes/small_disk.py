"""A file system of its own with little room, which only root can make."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """There, for as long as the block lasts."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "smartlinkd-test"]
    done = subprocess.run([*mount, folder], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def fill(filler: Path) -> None:
    """Leave no room for anything."""
    with filler.open("ab", buffering=0) as file:
        while free := shutil.disk_usage(filler.parent).free:
            file.write(bytes(free))
