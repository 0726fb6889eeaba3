"""The memory that a process tree uses, as its guardian measures it (see `guardian.py`); and who is
in the tree.

The problem: no figure of the kernel's is that of a tree, a fair one takes milliseconds, and a tree
has to be seen soon after it has used too much.

The choice: the fair figure is asked for only when the cheap one is too much, and the next look is
the later, the further away the limit is.

Like `guardian.py` it imports nothing of the daemon's, and little else.
"""

from __future__ import annotations

import os

from .children import children, read_all

TYPE_CHECKING = False  # that of `typing` costs more than it is worth here
if TYPE_CHECKING:
    from collections.abc import Iterator

# How often to look, in seconds: seldom while the tree could not come near its limit.
LOOK_EVERY = 0.05
LONGEST_LOOK = 1.0
# Bytes a second that a processor can fill with pages of its own: four times what was measured.
FILL_SPEED = 4 * 1024**3


def until_full(room: int) -> float:
    """In how many seconds to look again at a tree that may use so many bytes more."""
    soonest = room / (FILL_SPEED * (os.cpu_count() or 1))
    return min(max(soonest, LOOK_EVERY), LONGEST_LOOK)


def memory_used(enough: int) -> int:
    """How many bytes of memory and swap the tree uses: at most this when that is not over `enough`.

    Adding up what is cheap to know counts shared pages once for each process. Only when that comes
    to too much the kernel is asked for fair shares, for which it has to look at every page.
    """
    tree = [pid for pid, _ in trees(children())]
    at_most = sum(kilobytes(f"/proc/{pid}/status", (b"VmRSS", b"VmSwap")) for pid in tree) * 1024
    return at_most if at_most <= enough else sum(fair_share(pid) for pid in tree) * 1024


def fair_share(pid: int) -> int:
    """Its KiB, pages that it shares divided among those who share them."""
    share = kilobytes(f"/proc/{pid}/smaps_rollup", (b"Pss", b"SwapPss"))
    # It cannot be read of a process that is not dumpable.
    return share or kilobytes(f"/proc/{pid}/status", (b"VmRSS", b"VmSwap"))


def kilobytes(path: str, names: tuple[bytes, ...]) -> int:
    """The sum of these figures in a file under /proc; 0 when its process has gone."""
    try:
        figures = read_all(os.open(path, os.O_RDONLY))
    except OSError:
        return 0
    pairs = [line.partition(b":") for line in figures.split(b"\n")]
    return sum(int(figure.split()[0]) for name, _, figure in pairs if name in names)


def trees(pids: list[int]) -> Iterator[tuple[int, list[str]]]:
    """These and all below them, each with its threads, as far as that does not change meanwhile."""
    look_at = list(pids)
    while look_at:
        pid = look_at.pop()
        tasks = threads(pid)
        yield pid, tasks
        for task in tasks:
            try:
                look_at += children(f"/proc/{pid}/task/{task}/children")
            except OSError:
                continue  # it has ended: its children move to another's list


def threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - pathlib costs 10 ms here
    except OSError:
        return []
