"""A connection in memory that can be reset, or go dead without a word."""

from __future__ import annotations

from enum import Enum

import trio
from trio.testing import memory_stream_pair


class State(Enum):
    """How a wire is."""

    UP = "up"
    DEAD = "dead"  # half-open: what is sent is lost, nothing comes, nobody says so
    RESET = "reset"


class Wire(trio.abc.Stream):
    """The daemon's end of a connection; `there` is the other end."""

    def __init__(self) -> None:
        self._here, self.there = memory_stream_pair()
        self._state = State.UP
        self._receiving = trio.CancelScope()
        self._noise = b""

    def reset(self) -> None:
        """From now on every use is an error, also the one under way."""
        self._become(State.RESET)

    def go_dead(self) -> None:
        """From now on nothing passes, in either direction, and nothing tells of it."""
        self._become(State.DEAD)

    def garble(self) -> None:
        """What comes next is no frame of a websocket."""
        self._noise = b"\xff" * 64
        self._receiving.cancel()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if self._state is State.RESET:
            raise trio.BrokenResourceError("connection reset by peer")
        if self._state is State.UP:
            await self._here.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._here.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        while True:
            with trio.CancelScope() as self._receiving:
                if self._state is State.DEAD:
                    await trio.sleep_forever()
                if self._noise:
                    noise, self._noise = self._noise, b""
                    return noise
                if self._state is State.UP:
                    return bytes(await self._here.receive_some(max_bytes))
            if self._state is State.RESET:
                raise trio.BrokenResourceError("connection reset by peer")

    async def aclose(self) -> None:
        await self._here.aclose()

    def _become(self, state: State) -> None:
        self._state = state
        self._receiving.cancel()
