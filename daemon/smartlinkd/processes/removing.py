"""Folders of commands are removed with all that they hold.

The problem: a command may leave anything in its folder: what it has protected against writing,
links to what is not its own, things that are not ours to remove. And the folder may have to go in a
moment in which no file can be opened.

The choice: write-protection is taken away first, no symbolic link is followed, and one thing that
cannot be removed does not keep the others: why it is left is told, not raised. An empty folder is
removed without opening it. Rejected: `shutil.rmtree`, which leaves what is write-protected, and
whose import takes 7 ms, in front of the first command's start.

Like `guardian.py` it imports nothing of the daemon's, and little else.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # that of `typing` costs more than it is worth here
if TYPE_CHECKING:
    from collections.abc import Callable


def remove_folder(folder: bytes) -> str:
    """Remove `folder` and what it holds, following no symbolic link. What is left; mostly empty.

    One thing that cannot be removed does not keep the others.
    """
    if is_removed_empty(folder):
        return ""
    why = empty_folder(folder)
    try:
        os.rmdir(folder)  # noqa: PTH106 - pathlib costs 10 ms here
    except FileNotFoundError:
        return ""  # it was removed by who was in it, as by a shell's `trap 'rm -r "$TMPDIR"' EXIT`
    except OSError as fault:
        why = why or str(fault)
    return why and f"the folder cannot be removed: {why}"


def empty_folder(folder: bytes) -> str:
    """Remove what it holds, in the same way. Why something is left; mostly empty."""
    faults: list[str] = []
    try:
        let_us_change(folder)
        for _, folders, _, here in os.fwalk(folder):
            faults += [why for name in folders if (why := fault_of(let_us_change, name, here))]
        for _, folders, files, here in os.fwalk(folder, topdown=False):
            faults += [why for name in files + folders if (why := fault_of(remove, name, here))]
    except (OSError, RecursionError) as fault:  # the latter where it is too deep for fwalk()
        faults.append(str(fault))
    return faults[0] if faults else ""


def is_removed_empty(folder: bytes) -> bool:
    """Remove it if there is nothing in it; whether it is gone. This takes no descriptor: that there
    is none left may be why nothing was started in it."""
    try:
        os.rmdir(folder)  # noqa: PTH106 - pathlib costs 10 ms here
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def fault_of(change: Callable[[bytes, int], None], name: bytes, above: int) -> str:
    """Why a change was refused; mostly empty."""
    try:
        change(name, above)
    except OSError as fault:
        return str(fault)
    return ""


def let_us_change(folder: bytes, above: int | None = None) -> None:
    """Take its write-protection from a folder: some programs protect what they keep."""
    try:
        here = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    except NotADirectoryError:
        return  # a symbolic link to one
    try:
        os.chmod(b"/proc/self/fd/%d" % here, 0o700)  # noqa: PTH101 - pathlib costs 10 ms here
    finally:
        os.close(here)


def remove(name: bytes, above: int) -> None:
    try:
        os.unlink(name, dir_fd=above)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=above)
