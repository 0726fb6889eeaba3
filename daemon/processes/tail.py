"""The end of what processes write to a pipe, without any of them ever having to wait.

The problem: a program's last words say why it ended, so they must be there when its end is told.
But a program may write without end, and others that hold the pipe may outlive it, so neither all
of it nor its end can be waited for.

The choice: somebody reads whenever there is something, and only the end of it is kept.
"""

from __future__ import annotations

import os

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
        self._descriptor = descriptor
        self._kept = bytearray()
        self._is_cut = False
        os.set_blocking(descriptor, False)

    @property
    def text(self) -> str:
        """Begins with `CUT` when there was more."""
        text = self._kept.decode(errors="replace")
        # The first character may have lost a part of itself.
        return CUT + text.lstrip("\ufffd") if self._is_cut else text

    async def follow(self) -> None:
        """Read until all writers have gone."""
        await trio.lowlevel.wait_readable(self._descriptor)
        while self.read():
            await trio.lowlevel.wait_readable(self._descriptor)

    def read(self) -> bool:
        """Take what is there now. False when all writers have gone."""
        try:
            for _ in range(READS_AT_ONCE):
                data = os.read(self._descriptor, KEPT)
                if not data:
                    return False
                self._kept += data
                if len(self._kept) > KEPT:
                    self._is_cut = True
                    del self._kept[:-KEPT]
        except BlockingIOError:
            pass
        return True
