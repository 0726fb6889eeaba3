"""The private memory of a process, as the kernel counts it.

Only private dirty pages show a leak: the share of other pages depends on other processes. Without
the right to read them, the anonymous pages are counted instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_KIB: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


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
