"""What is at a path, or that this cannot be known.

The problem: whoever is told that a file does not exist, and sees it there, looks in the wrong place
for the fault. To pathlib's `exists()` and its like, what may not be looked at is not there: always
since Python 3.14, and in many cases before.

The choice: one stat(2), which tells the two apart.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def mode_of(path: Path) -> int | None:
    """The mode (`stat.S_ISREG` and its like take it) of what a path leads to; None where that is
    nothing. Raises OSError when nobody here may know.
    """
    try:
        return path.stat().st_mode
    except ValueError:
        return None  # a NUL in it, or half a character
    except OSError as error:
        if error.errno in _NOT_THERE:
            return None
        raise


def hidden_above(path: Path) -> Path | None:
    """The folder above it that is hidden from us as a whole: systemd shows it without any mode."""
    try:
        above = path.resolve().parents
    except (OSError, RuntimeError):  # links that lead in a circle
        return None
    for folder in reversed(above):
        try:
            if stat.S_IMODE(folder.stat().st_mode) == 0:
                return folder
        except OSError:
            break
    return None
