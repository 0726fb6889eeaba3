"""The floor of free space, below which a disk counts as full.

docs/decisions/051-full-disk.md tells about the room that is left.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOM: Final = 1024 * 1024
"""The free bytes without which a disk counts as full. SQLite may still find a page for a while."""


def has_room(folder: Path, beyond: int = 0) -> bool:
    """Return True if the file system of `folder` has room for `beyond` bytes more. Blocks."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return True  # a fault of another kind, which a write will report
    has_inodes = status.f_favail > 0 or status.f_files == 0  # some file systems count none
    return status.f_bavail * status.f_frsize >= ROOM + beyond and has_inodes
