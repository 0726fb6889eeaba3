"""Gates: something that is about to happen waits until a test lets it."""

from __future__ import annotations

import trio


class Gate:
    """`reached` when somebody stands at it; nobody passes before `open()`."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self._opened = trio.Event()

    async def enter(self) -> None:
        self.reached.set()
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()
