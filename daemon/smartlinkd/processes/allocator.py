"""Large blocks of memory go back to the kernel when they are freed.

The problem: glibc's malloc begins by giving each block of 128 KiB and more pages of its own, which
go back when it is freed. But with the first such free it takes the size for a usual one, and from
then on keeps blocks up to that size in its heaps, of which each thread that runs beside others has
one. Checking a password takes 19 MiB for 20 ms. So every heap in whose thread one was ever checked
keeps 20 MB for good: some 20 MB more of memory for each worker thread that there ever was at the
same time, although the checks themselves are one or two at a time.

The choice: say once how large a block has to be for pages of its own (mallopt(3),
M_MMAP_THRESHOLD), which also ends the guessing. A mebibyte: few things here are that large, and
for them the few microseconds of asking the kernel do not count.

Rejected: a single heap for all threads (M_ARENA_MAX), which still keeps the largest there ever was;
a thread of its own for passwords, which cures this one block and no other.
"""

from __future__ import annotations

import ctypes
from typing import Final

M_MMAP_THRESHOLD: Final = -3  # /usr/include/malloc.h
LARGE: Final = 1024 * 1024
"""Bytes."""


def return_large_blocks() -> None:
    """From here on. Where malloc is not glibc's, which alone has the problem, nothing is done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE)


def give_back_free_pages() -> None:
    """Give the kernel all pages that hold nothing (malloc_trim(3)).

    glibc does so by itself only at the end of its heaps. Takes milliseconds, so call it rarely:
    when many buffers were freed that were in use at the same time.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
