"""A small file system of its own. Only root can mount it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of this size (as mount(8) has it) at the new folder while the block runs."""
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
    """Append to the file until its file system has no free space."""
    with filler.open("ab", buffering=0) as file:
        while free := shutil.disk_usage(filler.parent).free:
            file.write(bytes(free))
