"""How much memory this process, and all that it starts, may use together.

A limit of the daemon's own that is above that is never met: the kernel slows everything down first,
and then picks something to kill.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def memory_allowed() -> int:
    """Bytes: the least that any control group around us is given, or else what the machine has."""
    # Not from /proc/meminfo, which the service does not see.
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_bounds()])


def _bounds() -> Iterator[int]:
    with suppress(OSError):  # what cannot be read bounds nothing
        for line in _OWN_GROUP.read_text().splitlines():
            if line.startswith("0::/"):  # version 2
                own = PurePosixPath(line.removeprefix("0::/"))
                for group in (own, *own.parents):
                    yield from _bounds_of(_GROUPS / group)


def _bounds_of(group: Path) -> Iterator[int]:
    for name in ("memory.high", "memory.max"):
        with suppress(OSError):  # the outermost has none
            text = (group / name).read_text().strip()
            if text != "max":
                yield int(text)
