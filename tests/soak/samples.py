"""Samples of the resources of the daemon and its Chromium, taken while the daemon is idle.

A sample is flat: each value is a column of the CSV file. Memory is in kilobytes (see `memory.py`);
other values are counts.
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
    """A sample. `stretch` and `generation` (of Chromium) count from 0.

    `jobs` are the numbers of finished jobs by kind, and `values` the measurements by column.
    """

    at: float  # seconds since the soak began
    stretch: int
    generation: int
    jobs: dict[str, int]
    values: dict[str, float]

    @property
    def conversions(self) -> int:
        return self.jobs["conversion"]

    def row(self) -> Json:
        jobs = {f"{kind} jobs": count for kind, count in self.jobs.items()}
        where = {"at": round(self.at, 1), "stretch": self.stretch, "generation": self.generation}
        return {**where, **jobs, **self.values}


def measure(observer: Path, daemon: int, chromium: int) -> dict[str, float]:
    """Return the columns of a sample.

    `observer` is the path of the observer's socket. `daemon` and `chromium` are process ids.
    """
    pids = tree(chromium)
    return {
        **{f"daemon {name}": value for name, value in _read_observer(observer).items()},
        "daemon reapers": len([each for server in children(daemon) for each in children(server)]),
        "chromium threads": _entries(f"/proc/{chromium}/task"),
        "chromium descriptors": _entries(f"/proc/{chromium}/fd"),
        "tree processes": len(pids),
        "tree private": sum(map(_memory, pids)),
    }


def tree(chromium: int) -> list[int]:
    """Return the processes of a Chromium, the oldest first: they stay in its session."""
    found = [
        (int(fields[19]), pid)  # the time of its start
        for pid, fields in _stats()
        if int(fields[3]) == chromium and fields[0] != "Z"
    ]
    return [pid for _, pid in sorted(found)]


def renderers(chromium: int) -> list[int]:
    """Return the processes that show pages, the oldest first."""
    found = []
    for pid in tree(chromium):
        with suppress(OSError):
            if b"--type=renderer" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def children(parent: int) -> list[int]:
    """Return the child processes that have not ended."""
    return [pid for pid, found in _stats() if int(found[1]) == parent and found[0] != "Z"]


def processes_of(folder: Path) -> list[int]:
    """Return the processes with their home or their working directory below a folder.

    Chromium and workers have their home there, and reapers their working directory.
    """
    mark, found = f"HOME={folder}".encode(), []
    for pid, (state, *_) in _stats():
        with suppress(OSError):
            works_below = Path(f"/proc/{pid}/cwd").readlink().is_relative_to(folder)
            if works_below or mark in Path(f"/proc/{pid}/environ").read_bytes():
                found += [] if state == "Z" else [pid]
    return found


def _read_observer(observer: Path) -> dict[str, float]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(observer))
        with connection.makefile("rb") as answer:
            snapshot: dict[str, float] = json.load(answer)
    return snapshot


def _memory(pid: int) -> float:
    with suppress(OSError, KeyError):  # the process may have ended meanwhile
        return memory_of(pid)
    return 0.0


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Yield each process id with its state, parent, group, session, … (proc(5), after the name)."""
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are enough
        if name.isdigit():
            with suppress(OSError):
                yield (
                    int(name),
                    Path(f"/proc/{name}/stat")
                    .read_text("utf-8", "replace")
                    .rpartition(")")[2]
                    .split(),
                )


def _entries(folder: str) -> int:
    """Return the number of entries; 0 without the right to read the folder."""
    try:
        return len(os.listdir(folder))  # noqa: PTH208
    except PermissionError:
        return 0
