"""The state directory: made if it is missing, and used by one daemon at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_NAME = "lock"


class StateUnusable(Exception):  # noqa: N818 - it names what is the matter
    """The state directory, or a file in it, cannot be used; the text says why and what to do."""


@contextmanager
def claim(directory: Path) -> Iterator[None]:
    """Hold the directory until the block ends. The kernel lets go of it when the process dies.

    Raises `StateUnusable`.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateUnusable(
            f"state.directory: {directory} cannot be used ({error.strerror}); "
            "make it writable for the daemon's user, or name another one"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateUnusable(
            f"state.directory: another daemon is using {directory}; stop it, or give this one a "
            "directory of its own"
        ) from None
    else:
        yield
    finally:
        os.close(descriptor)
