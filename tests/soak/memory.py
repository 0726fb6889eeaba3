"""The memory of a process: the private one, as the kernel counts it, and what malloc has given out.

Only private dirty pages show a leak: the share of other pages depends on other processes. Without
the right to read them, the anonymous pages are counted instead.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Final

_KIB: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


class _MallocInfo(ctypes.Structure):
    """The answer of mallinfo2(3)."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks")),
        ("keepcost", ctypes.c_size_t),
    )


_LIBC: Final = ctypes.CDLL(None)
_LIBC.mallinfo2.restype = _MallocInfo


def allocated() -> float:
    """Return the kilobytes of 1000 bytes that this process has of malloc.

    Python's objects of at most 512 bytes are not among them.
    """
    info: _MallocInfo = _LIBC.mallinfo2()
    kept: int = info.uordblks + info.hblkhd
    return kept / 1000


def memory_of(pid: int | str) -> float:
    """Return kilobytes of 1000 bytes. `pid` may be "self".

    Raises:
        OSError: The process has ended.
    """
    try:
        size = fields(f"/proc/{pid}/smaps_rollup")["Private_Dirty"]
    except PermissionError:
        size = fields(f"/proc/{pid}/status")["RssAnon"]
    return size * 1.024


def fields(path: str) -> dict[str, int]:
    """Return the sizes in a file of /proc by name, in units of 1024 bytes."""
    text = Path(path).read_text(encoding="utf-8")
    return {name: int(number) for name, number in _KIB.findall(text)}
