"""A Chromium that does as a test tells it, for the calls of actor, instance and tab pool.

No test compares it with the real Chromium, as the tests of `tests/fakes/chromium.py` do for that
fake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import CallTimedOut, Disconnected, LaunchFailed, SessionGone
from smartlinkd.browser.page import UrlListener


class PlayedChromium:
    """A Chromium, and the connection to it, that do as a test tells them."""

    def __init__(self, number: int = 1) -> None:
        self.pid = number
        self.version = f"Chromium {number}"
        self.endpoint = f"ws://browser.test/{number}"
        self.hung = False  # answers nothing
        self.mute = False  # answers, but runs no script
        self.hoards = False  # disposes of nothing, and closes nothing
        self.opens = True  # tabs come up
        self.call_takes = 0.0
        self.megabytes = 100
        self.unmeasured: Exception | None = None  # what a look at its memory meets
        self.contexts: list[PlayedContext] = []
        self.pages: list[PlayedPage] = []
        self.being_made = 0
        self.most_being_made = 0
        self._exited = trio.Event()
        self._closed = trio.Event()

    def exit(self) -> None:
        self._exited.set()
        self.close()

    def close(self) -> None:
        self._closed.set()

    async def wait(self) -> str:
        await self._exited.wait()
        return "signal 9"

    async def wait_closed(self) -> str:
        await self._closed.wait()
        return "it was closed"

    async def memory(self) -> int:
        if self.unmeasured is not None:
            raise self.unmeasured
        return self.megabytes << 20

    async def call(self, deadline: float = 10.0, *, answered: bool = True) -> None:
        """Return in time, or raise as a call of CDP."""
        with trio.move_on_after(deadline):
            await trio.sleep(self.call_takes)
            if self.hung or not answered:
                await self._closed.wait()
            if self._closed.is_set():
                raise Disconnected("the connection to the browser has ended")
            return
        raise CallTimedOut("Played.call", deadline)


class PlayedPage:
    def __init__(self, context: PlayedContext) -> None:
        self.context = context
        self.opened = 0  # by the tests' own `open_tab`
        self.document_count = 0
        self.is_gone = False
        self.asked = 0
        self.loops = False
        self.show: UrlListener

    def set_url_listener(self, listener: UrlListener) -> None:
        self.show = listener

    async def evaluate(self, _: str, *, deadline: float = 10.0) -> None:
        chromium = self.context.chromium
        self.asked += 1
        if self.is_gone:
            raise SessionGone("the tab crashed")
        await chromium.call(deadline, answered=not (chromium.mute or self.loops))

    async def close(self) -> None:
        await self.context.chromium.call(answered=not self.context.chromium.hoards)
        self.context.chromium.pages.remove(self)


class PlayedContext:
    def __init__(self, chromium: PlayedChromium, cookies: Sequence[Mapping[str, object]]) -> None:
        self.chromium = chromium
        self.cookies = cookies

    @classmethod
    async def create(
        cls, connection: PlayedChromium, cookies: Sequence[Mapping[str, object]]
    ) -> PlayedContext:
        context = cls(connection, cookies)
        await _made(connection, context, connection.contexts)
        return context

    async def new_page(self) -> PlayedPage:
        page = PlayedPage(self)
        if not self.chromium.opens:
            await self.chromium.call(answered=False)
        await _made(self.chromium, page, self.chromium.pages)
        return page

    async def dispose(self) -> None:
        await self.chromium.call(answered=not self.chromium.hoards)
        self.chromium.contexts.remove(self)
        self.chromium.pages = [page for page in self.chromium.pages if page.context is not self]


M = TypeVar("M")


async def _made(chromium: PlayedChromium, thing: M, things: list[M]) -> None:
    """Make `thing`, by a call before and one after. Leaves nothing when either fails."""
    chromium.being_made += 1
    chromium.most_being_made = max(chromium.most_being_made, chromium.being_made)
    try:
        await chromium.call()
        things.append(thing)
        try:
            await chromium.call()
        except BaseException:
            things.remove(thing)
            raise
    finally:
        chromium.being_made -= 1


class PlayedChromiums:
    """Stands in for launching, connecting, and looking at the sandbox."""

    def __init__(self) -> None:
        self.launched: list[PlayedChromium] = []
        self.running: list[PlayedChromium] = []
        self.launch_takes = 1.0
        self.launch_fails = ""
        self.confined = True
        self.prepare: Callable[[PlayedChromium], None] = lambda _: None

    @asynccontextmanager
    async def launch(self, _: LaunchSettings) -> AsyncIterator[PlayedChromium]:
        await trio.sleep(self.launch_takes)
        if self.launch_fails:
            raise LaunchFailed(self.launch_fails)
        chromium = PlayedChromium(len(self.launched) + 1)
        self.prepare(chromium)
        self.launched.append(chromium)
        self.running.append(chromium)
        try:
            yield chromium
        finally:
            self.running.remove(chromium)

    @asynccontextmanager
    async def connect(self, endpoint: str) -> AsyncIterator[PlayedChromium]:
        (chromium,) = (one for one in self.running if one.endpoint == endpoint)
        try:
            yield chromium
        finally:
            chromium.close()

    async def product(self, connection: PlayedChromium) -> str:
        await connection.call()
        return connection.version

    async def is_sandboxed(self, connection: PlayedChromium) -> bool:
        await connection.call()
        return self.confined
