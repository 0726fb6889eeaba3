"""What the kernel says of a process's memory, in kilobytes of 1000 bytes.

`rss` counts each page that the process has mapped, `pss` divides shared ones among those who share
them, and `private` are those that it has written to and nobody shares. A leak is of these. The
others move with what neighbours do: another Chromium on the machine halves what the program's own
pages count for. So it is `private` that the soak judges. Where the kernel does not show it (of
somebody else's process, without the right to look into it), the anonymous pages stand for it, and
`pss` is 0.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_KIB: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


def memory_of(pid: int | str) -> dict[str, float]:
    """Of the process `pid`, or "self". Raises `OSError` for one that has ended."""
    try:
        found = fields(f"/proc/{pid}/smaps_rollup")
        sizes = {
            "rss": found["Rss"],
            "pss": found["Pss"],
            "private": found["Private_Dirty"],
        }
    except PermissionError:
        found = fields(f"/proc/{pid}/status")
        sizes = {"rss": found["VmRSS"], "pss": 0, "private": found["RssAnon"]}
    return {name: size * 1.024 for name, size in sizes.items()}


def fields(path: str) -> dict[str, int]:
    """What stands there by name, in kB as the kernel has them: 1024 bytes."""
    text = Path(path).read_text(encoding="utf-8")
    return {name: int(number) for name, number in _KIB.findall(text)}
