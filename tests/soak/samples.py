"""Samples: what the daemon and its Chromium have, at moments that are alike.

A sample is flat, since all that comes after (a table, a fit, a plot, a CSV file) takes a column of
it. Memory is in kilobytes (see `memory.py`); the rest are numbers of things.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.soak.memory import memory_of

Json = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """One moment. `stretch` and `generation` (of Chromium) count from 0.

    `jobs` are those of each kind that have ended so far, `values` what was measured, by column, and
    `kinds` the daemon's descriptors by kind.
    """

    at: float  # seconds since the soak began
    stretch: int
    name: str  # of the stretch
    generation: int
    jobs: dict[str, int]
    values: dict[str, float]
    kinds: dict[str, int]

    def row(self) -> Json:
        named = {f"{kind} jobs": count for kind, count in self.jobs.items()}
        where = {"at": round(self.at, 1), "stretch": self.stretch, "name": self.name}
        return {**where, "generation": self.generation, **named, **self.values, "kinds": self.kinds}


def measure(observer: Path, daemon: int, chromium: int) -> tuple[dict[str, float], dict[str, int]]:
    """The columns of a sample, and the daemon's descriptors by kind.

    `observer` is the socket in the daemon's process, the numbers are of the two main processes.
    """
    seen = _ask(observer)
    pids = tree(chromium)
    values = {
        "daemon private": seen["memory"],
        "daemon descriptors": sum(seen["descriptors"].values()),
        "daemon threads": seen["threads"],
        "daemon tasks": seen["tasks"],
        "daemon blocks": seen["blocks"],
        "daemon reapers": len(reapers(daemon)),
        "chromium private": memory_of(chromium),
        "chromium threads": _entries(f"/proc/{chromium}/task"),
        "chromium descriptors": _entries(f"/proc/{chromium}/fd"),
        "tree processes": len(pids),
        "tree private": sum(map(_memory, pids)),
    }
    return values, seen["descriptors"]


def reapers(daemon: int) -> list[int]:
    return [reaper for server in children(daemon) for reaper in children(server)]


def tree(chromium: int) -> list[int]:
    """Its processes: a command leads a session, and they stay in it."""
    return [pid for pid, stat in _stats() if int(stat[3]) == chromium and stat[0] != "Z"]


def renderers(chromium: int) -> list[int]:
    """The processes that show pages, the oldest first."""
    found = []
    for pid in tree(chromium):
        with suppress(OSError):
            if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append((_started(pid), pid))
    return [pid for _, pid in sorted(found)]


def children(parent: int) -> list[int]:
    """The processes whose parent it is, but for those that have ended."""
    return [pid for pid, stat in _stats() if int(stat[1]) == parent and stat[0] != "Z"]


def processes_of(folder: Path) -> list[int]:
    """Those that were started with a home below a folder, as Chromium's and workers are, or that
    work below it, as their reapers do."""
    mark, found = f"HOME={folder}".encode(), []
    for pid, stat in _stats():
        with suppress(OSError):
            works_below = Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)
            if works_below or mark in Path(f"/proc/{pid}/environ").read_bytes():
                found += [] if stat[0] == "Z" else [pid]
    return found


def _ask(observer: Path) -> Json:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(30)
        asking.connect(str(observer))
        told = b""
        while data := asking.recv(65536):
            told += data
    seen: Json = json.loads(told)
    return seen


def _memory(pid: int) -> float:
    with suppress(OSError, KeyError):  # it has ended since it was listed
        return memory_of(pid)
    return 0.0


def _started(pid: int) -> int:
    return int(_stat(pid)[19])


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Of each process: state, parent, group, session, … (see proc(5), behind the name)."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are enough
        if name.isdigit():
            with suppress(OSError):
                yield int(name), _stat(int(name))


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _entries(folder: str) -> int:
    """How many there are; 0 for others than root, who may not look."""
    try:
        return len(os.listdir(folder))  # noqa: PTH208
    except PermissionError:
        return 0
