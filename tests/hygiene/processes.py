"""Processes that a test started, and the processes that those started.

Our own children are in a list of the kernel's, zombies included. A grandchild whose parent ended
is in no list of ours: the kernel gave it to the machine's first process. It is known by the mark
(see `folder.py`) in its command, environment or working folder, which is looked for in all
processes of the machine that were not seen before. That takes milliseconds, so it is done only
when a child of ours has ended since the last time, by the kernel's count of what they used.
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
    """The ids of our children, or of those of another process."""
    found: set[int] = set()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        for task in os.listdir(f"/proc/{of}/task"):  # noqa: PTH208 - a thousandth of the time
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
                found.update(map(int, _read(f"/proc/{of}/task/{task}/children").split()))
    return found


def descendants(besides: Set[int] = frozenset()) -> set[int]:
    """The ids of our children, of theirs, and so on, but not of those `besides` and below."""
    found = look_at = children() - besides
    while look_at:
        look_at = {child for pid in look_at for child in children(str(pid))} - besides
        found = found | look_at
    return found


def command_of(pid: int) -> str:
    """Its command line, or what it is instead."""
    with suppress(OSError):
        words = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").strip()
        name = _read(f"/proc/{pid}/comm").decode(errors="replace").strip()
        return words.decode(errors="replace") or f"{name}, which has ended and was not waited for"
    return "gone by now"


def end(pid: int) -> None:
    """End a process that a test left, so that it troubles nobody after it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with suppress(ChildProcessError):  # it is no child of ours, or was waited for just now
        os.waitpid(pid, 0)


class Strays:
    """Finds processes of ours that are no children of ours."""

    def __init__(self) -> None:
        self._used = -1
        self._strangers: set[int] = set()
        self._ours: set[int] = set()

    def look(self) -> set[int]:
        """Those that are alive, and are below none of our children."""
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
            elif _is_becoming(pid):
                self._used = -1  # look again, whatever has ended until then
            else:
                self._strangers.add(pid)


def _is_marked(pid: int) -> bool:
    with suppress(OSError):
        place = os.readlink(f"/proc/{pid}/cwd").encode() + b"/"  # noqa: PTH115
        texts = (place, _read(f"/proc/{pid}/cmdline"), _read(f"/proc/{pid}/environ"))
        return any(mark in text for mark in MARKS for text in texts)
    return False


def _is_becoming(pid: int) -> bool:
    """It is in the midst of execve(2): it has neither a command nor an environment yet, like the
    dead and the kernel's own threads."""
    with suppress(OSError):
        if _read(f"/proc/{pid}/cmdline"):
            return False
        return _alive(pid) and not int(_stat(pid)[6]) & KERNEL_THREAD
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
    """Its state, and its parent; ("", 0) when it is gone."""
    with suppress(OSError):
        state, parent, *_ = _stat(pid)
        return state.decode(), int(parent)
    return "", 0


def _stat(pid: int) -> list[bytes]:
    """From its state on; proc(5)."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def _read(path: str) -> bytes:
    return Path(path).read_bytes()
