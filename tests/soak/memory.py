"""What the kernel says of a process's memory.

A leak is of the pages that a process has written to and nobody shares. The others move with what
neighbours do: another Chromium on the machine halves what the program's own pages count for. Where
the kernel does not show them (of somebody else's process, without the right to look into it), the
anonymous pages stand for them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_KIB: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def memory_of(pid: int | str) -> float:
    """Kilobytes of 1000 bytes, of the process `pid`, or "self". Raises `OSError` for one that has
    ended."""
    try:
        size = fields(f"/proc/{pid}/smaps_rollup")["Private_Dirty"]
    except PermissionError:
        size = fields(f"/proc/{pid}/status")["RssAnon"]
    return size * 1.024


def fields(path: str) -> dict[str, int]:
    """What stands there by name, in kB as the kernel has them: 1024 bytes."""
    text = Path(path).read_text(encoding="utf-8")
    return {name: int(number) for name, number in _KIB.findall(text)}
