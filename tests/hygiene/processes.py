"""Processes that a test started, and their descendants.

The kernel lists our children, zombies included. A grandchild whose parent has ended belongs to
init, but has our mark (`folder.py`) in its command, environment or working folder. The search for
it reads all new processes, which takes milliseconds; so it runs only if a child has ended since the
last search, by the kernel's count of page faults of ended children.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from tests.hygiene.folder import FOLDER

KERNEL_THREAD = 0x00200000
"""Linux's PF_KTHREAD, in the flags of /proc/PID/stat."""

MARKS = (f"{FOLDER}/".encode(), f"TMPDIR={FOLDER}\0".encode())


def children(of: str = "self") -> set[int]:
    """Return the process ids of our children, or of another process's."""
    found: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in os.listdir(f"/proc/{of}/task"):  # noqa: PTH208 - a thousandth of the time
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                found.update(map(int, _read(f"/proc/{of}/task/{task}/children").split()))
    return found


def descendants(besides: Set[int] = frozenset()) -> set[int]:
    """Return the process ids of our descendants, without `besides` and their descendants."""
    found = look_at = children() - besides
    while look_at:
        look_at = {child for pid in look_at for child in children(str(pid))} - besides
        found = found | look_at
    return found


def command_of(pid: int) -> str:
    """Return the process's command line, or a description if it has ended."""
    with suppress(OSError):
        words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").strip()
        name = _read(f"/proc/{pid}/comm").decode(errors="replace").strip()
        return words.decode(errors="replace") or f"{name}, which has ended and was not waited for"
    return "gone by now"


def end(pid: int) -> None:
    """Kill a process that a test left."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):  # no child of ours, or waited for already
        os.waitpid(pid, 0)


class Strays:
    """Finds processes of ours that are no descendants of ours."""

    def __init__(self) -> None:
        self._used = -1
        self._strangers: set[int] = set()
        self._ours: set[int] = set()

    def find(self) -> set[int]:
        """Return the process ids of those that are alive."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
        if used != self._used:
            self._used = used
            self._search()
        self._ours = {pid for pid in self._ours if _alive(pid)}
        return {pid for pid in self._ours if not _is_below(pid, os.getpid())}

    def _search(self) -> None:
        running = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
        self._strangers &= running
        for pid in running - self._strangers - self._ours - {os.getpid()}:
            if _is_marked(pid):
                self._ours.add(pid)
            elif _is_in_execve(pid):
                self._used = -1  # search again next time
            else:
                self._strangers.add(pid)


def _is_marked(pid: int) -> bool:
    with suppress(OSError):
        place = os.readlink(f"/proc/{pid}/cwd").encode() + b"/"  # noqa: PTH115
        texts = (place, _read(f"/proc/{pid}/cmdline"), _read(f"/proc/{pid}/environ"))
        return any(mark in text for mark in MARKS for text in texts)
    return False


def _is_in_execve(pid: int) -> bool:
    """True if the process is in execve(2).

    Until that is over it has neither command nor environment, as zombies and kernel threads.
    """
    with suppress(OSError):
        if _read(f"/proc/{pid}/cmdline"):
            return False
        return _alive(pid) and not int(stat(pid)[6]) & KERNEL_THREAD
    return False


def _alive(pid: int) -> bool:
    return _status(pid)[0] not in ("", "Z", "X")


def _is_below(pid: int, ancestor: int) -> bool:
    while pid > 1:
        pid = _status(pid)[1]
        if pid == ancestor:
            return True
    return False


def _status(pid: int) -> tuple[str, int]:
    """Return the process's state and parent; ("", 0) if it is gone."""
    with suppress(OSError):
        state, parent, *_ = stat(pid)
        return state, int(parent)
    return "", 0


def stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; proc(5)."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].decode().split()


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
