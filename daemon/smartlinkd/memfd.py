"""Sealed memfds (memfd_create(2)): content in memory that nobody can change any more.

A descriptor that another process reads (systemd's store, a reaper) could otherwise be written to
meanwhile.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

_ALL_SEALS: Final = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def sealed_file(name: str, content: bytes) -> int:
    """Return the descriptor of a new sealed memfd. The caller closes it; no child inherits it.

    Args:
        name: shown in /proc.

    Raises:
        OSError: no memory or descriptor is left.
    """
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _ALL_SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
