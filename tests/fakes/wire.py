"""A connection in memory that can be reset."""

from __future__ import annotations

import trio
from trio.testing import memory_stream_pair


class Wire(trio.abc.Stream):
    """The daemon's end of an in-memory connection; `there` is the other end."""

    def __init__(self) -> None:
        self._here, self.there = memory_stream_pair()
        self.is_reset = False
        self._receiving = trio.CancelScope()

    def reset(self) -> None:
        """Make every use fail from now on, also the current one."""
        self.is_reset = True
        self._receiving.cancel()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        self._check()
        await self._here.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._here.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        self._check()
        with trio.CancelScope() as self._receiving:
            return bytes(await self._here.receive_some(max_bytes))
        self._check()
        raise AssertionError("only a reset cancels it")

    async def aclose(self) -> None:
        await self._here.aclose()

    def _check(self) -> None:
        if self.is_reset:
            raise trio.BrokenResourceError("connection reset by peer")
