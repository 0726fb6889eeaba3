"""The daemon's own process: closing it to its user's other ones, and its descriptors and memory.

Crews run as the daemon's user, and so could read the cookie and all keys from its memory.
docs/decisions/044-private-process.md tells what closing it costs and what it does not do.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from smartlinkd.processes.reaper import prctl

PR_SET_DUMPABLE: Final = 4
ENOUGH_DESCRIPTORS: Final = 8192
"""As many as the service has (LimitNOFILE). Each address that is listened at takes up to 512."""
M_MMAP_THRESHOLD: Final = -3  # mallopt(3)
LARGE_BYTES: Final = 1024 * 1024


def make_private() -> None:
    """Let only root inspect this process from now on, and let it leave no core dumps.

    A program that it starts begins dumpable again (execve(2)).

    Raises:
        OSError: the kernel refuses it, as a filter for system calls may.
    """
    prctl(PR_SET_DUMPABLE, 0)


def raise_descriptor_limit() -> None:
    """Allow `ENOUGH_DESCRIPTORS`, or as many as the hard limit does. A shell allows only 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(ENOUGH_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def return_large_blocks() -> None:
    """Have malloc give freed blocks of `LARGE_BYTES` and more back to the kernel.

    glibc's would keep the 19 MiB of a password check for each thread that ever made one. A libc
    without mallopt(3) is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def memory_limit(
    own_cgroup: Path = Path("/proc/self/cgroup"), cgroups: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return the bytes that this process and all it starts may use together.

    That is the least that a control group around it may use, or what the machine has. The daemon's
    own limits have no effect above it: the kernel kills first.
    """
    # Not from /proc/meminfo, which the service does not see.
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *_cgroup_limits(own_cgroup, cgroups)])


def _cgroup_limits(own_cgroup: Path, cgroups: Path) -> Iterator[int]:
    lines = []
    with suppress(OSError):  # a system without control groups
        lines = own_cgroup.read_text().splitlines()
    for line in lines:
        if line.startswith("0::/"):  # cgroups(7), version 2
            own = PurePosixPath(line.removeprefix("0::/"))
            for group in (own, *own.parents):
                for name in ("memory.high", "memory.max"):
                    with suppress(OSError, ValueError):  # the root has none; "max" is no limit
                        yield int((cgroups / group / name).read_text())
