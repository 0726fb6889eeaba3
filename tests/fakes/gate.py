"""A gate stops a task until a test opens it."""

from __future__ import annotations

import trio


class Gate:
    """`reached` is set when a task arrives; `open()` lets all tasks pass."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self._opened = trio.Event()

    async def enter(self) -> None:
        self.reached.set()
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()
