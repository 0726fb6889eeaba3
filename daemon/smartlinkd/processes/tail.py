"""The end of what processes write to pipes, without any of them ever having to wait.

The problem: a program's last words say why it ended, so they must be there when its end is told.
But a program may write without end, and others that hold the pipe may outlive it, so neither all
of it nor its end can be waited for.

The choice: somebody reads whenever there is something, and only the end of it is kept. One task
does that for all commands, which has their pipes in an epoll(7) of its own. Rejected: a task for
each pipe, most of which have nothing in them but their end.
"""

from __future__ import annotations

import os
import select
from typing import NoReturn

import trio

# Enough for any program's last words, whatever it wrote before.
KEPT = 64 * 1024
CUT = "…"
"""What a text begins with of which the beginning was not kept."""
# A writer without end must not keep the reader from everything else.
READS_AT_ONCE = 16


class Tail:
    """The last 64 KiB that came out of `descriptor`, a pipe's read end, which it does not own."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._kept = bytearray()
        self._is_cut = False
        os.set_blocking(descriptor, False)

    @property
    def text(self) -> str:
        """Begins with `CUT` when there was more."""
        text = self._kept.decode(errors="replace")
        # The first character may have lost a part of itself.
        return CUT + text.lstrip("\ufffd") if self._is_cut else text

    def read(self) -> bool:
        """Take what is there now. False when all writers have gone."""
        try:
            for _ in range(READS_AT_ONCE):
                data = os.read(self.descriptor, KEPT)
                if not data:
                    return False
                self._kept += data
                if len(self._kept) > KEPT:
                    self._is_cut = True
                    del self._kept[:-KEPT]
        except BlockingIOError:
            pass
        return True


class Tails:
    """All that are followed, while `follow()` runs."""

    def __init__(self) -> None:
        """Raises `OSError` when there is no descriptor left."""
        self._ready = select.epoll()
        self._followed: dict[int, Tail] = {}

    def add(self, tail: Tail) -> None:
        """Follow it, until all its writers have gone. It is to be dropped before it is closed."""
        self._ready.register(tail.descriptor, select.EPOLLIN)
        self._followed[tail.descriptor] = tail

    def drop(self, tail: Tail) -> None:
        """Do not follow it any more, if it was."""
        if self._followed.pop(tail.descriptor, None) is not None:
            self._ready.unregister(tail.descriptor)

    async def follow(self) -> NoReturn:
        """Read what there is, whenever there is something."""
        while True:
            await trio.lowlevel.wait_readable(self._ready)
            for descriptor, _ in self._ready.poll(0):
                tail = self._followed[descriptor]
                if not tail.read():
                    self.drop(tail)

    def close(self) -> None:
        """Stop following. The pipes stay open."""
        self._ready.close()
