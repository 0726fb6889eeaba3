"""The kind of the file at a path, or an error that this cannot be known.

Since Python 3.14 pathlib's `exists()` is False for a path that this process may not look at. An
error that says "does not exist" would then send its reader the wrong way.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def mode_of(path: Path) -> int | None:
    """Return the mode of the file at a path, for `stat.S_ISREG` and its like; None without a file.

    Raises:
        OSError: this process may not look there.
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
    """Return the parent folder that systemd hides from the service (its mode is 0), or None."""
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
