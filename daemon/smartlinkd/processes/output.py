"""The end of what processes write to a pipe, read so that none of them ever waits.

A program's last words say why it ended, but it may write without end, and another process may hold
the pipe for longer. So a task reads whenever there is something, and keeps only the end of it.
"""

from __future__ import annotations

import os
from typing import Final

import trio

KEPT: Final = 64 * 1024
"""Bytes that are kept, enough for any program's last words."""
CUT: Final = "…"
"""The first character of a text whose beginning was not kept."""

_LARGEST_PIPE: Final = 1024 * 1024
"""Bytes that one read may return: all that a pipe can hold (pipe(7))."""


class OutputTail:
    """The last 64 KiB that came out of a pipe.

    Args:
        descriptor: the pipe's read end. The caller closes it, after `follow` has ended.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._kept = bytearray()
        self._is_cut = False
        os.set_blocking(descriptor, False)

    @property
    def text(self) -> str:
        """The text so far. It begins with `CUT` if there was more."""
        text = self._kept.decode(errors="replace")
        # The first character may have lost a part of itself.
        return CUT + text.lstrip("\ufffd") if self._is_cut else text

    def read(self) -> bool:
        """Read what the pipe holds now. Return False once all writers have closed it."""
        try:
            data = os.read(self._descriptor, _LARGEST_PIPE)
        except BlockingIOError:
            return True
        self._kept += data
        if len(self._kept) > KEPT:
            self._is_cut = True
            del self._kept[:-KEPT]
        return bool(data)

    async def follow(self) -> None:
        """Read whenever there is something, until all writers have closed the pipe."""
        while True:
            await trio.lowlevel.wait_readable(self._descriptor)
            if not self.read():
                return
