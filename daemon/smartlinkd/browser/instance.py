"""One generation of the browser: a launched Chromium, from its first canary beat to its end.

Four things may end a Chromium from our point of view, and each is seen in another way: the process
exits; the websocket closes; the canary, a page of ours that runs a line of script every second,
stops answering (a stopped process keeps its socket open, and a hung one answers the protocol but
runs no script); or it should not go on, since it has grown too large or too old, has not disposed
of a context, or opens no more tabs. The first to notice says so, with the reason. Nobody else
decides that a browser is alive: not the process table, not the protocol.

The first three are deaths, and end everything at once. The last is a recycling: it serves on until
it is let go, and its work has ended; only a death ends it before.

A generation whose renderers are not confined by Chromium's sandbox does not start, unless the
configuration says that it may. Not every missing sandbox makes Chromium itself refuse: a script in
the browser's place may add --no-sandbox.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TypeVar

import trio

from smartlinkd.browser.cdp import CALL_DEADLINE, Connection, connect
from smartlinkd.browser.chromium import (
    SANDBOX_REMEDY,
    Chromium,
    LaunchSettings,
    launch,
    product,
    sandbox_state,
)
from smartlinkd.browser.errors import Disconnected, LaunchFailed
from smartlinkd.browser.page import BrowserContext, Page
from smartlinkd.browser.tab_pool import Contexts, Place
from smartlinkd.errors import Refused
from smartlinkd.threads import NoThread

logger = logging.getLogger(__name__)

R = TypeVar("R")

BEAT_EVERY = 1.0
BEAT_DEADLINE = 2.0
"""Seconds for one line of script. It takes a millisecond; a busy machine may need a while."""
CANARY_SIZE = (16, 16)
"""Pixels. It has nothing to show; in the size of a window that would take five megabytes."""
MISSES = 2
"""Beats missed in a row after which the browser counts as unresponsive."""
FRESH = 5.0
"""Seconds for which a beat vouches for the browser."""
EXIT_PATIENCE = 0.5
"""Seconds that a process may take to end after its socket has closed: that it ended says more."""
VERDICT = MISSES * (BEAT_EVERY + BEAT_DEADLINE)
"""Seconds within which the canary has said that a browser is unresponsive, if it is."""
SANDBOX_PATIENCE = 5.0
SANDBOX_LOOK_EVERY = 0.05
"""A renderer that is just starting is not confined yet; it takes milliseconds when all is well."""
MEASURE_EVERY = 30.0


class EndKind(StrEnum):
    """Why a generation is over; the kinds of a restart's reason."""

    CRASHED = "crashed"
    DISCONNECTED = "disconnected"
    UNRESPONSIVE = "unresponsive"
    RECYCLED = "recycled"  # by choice: it still works


@dataclass(frozen=True)
class End:
    """The end of a generation, and what was seen of it."""

    kind: EndKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True)
class GenerationSettings:
    """Bounds of one generation: contexts kept warm, their idle seconds, and when to recycle."""

    launch: LaunchSettings
    contexts: int
    idle: float
    recycle_after: float  # seconds
    recycle_memory: int  # bytes of memory that Chromium alone uses


class Generation:
    """Do work on it by `use`; wait for its end by `wait_ended`; `retire` lets it go."""

    def __init__(self, settings: GenerationSettings) -> None:
        self._settings = settings
        self._contexts: Contexts | None = None
        self._over = trio.Event()
        self._finished = trio.Event()
        self._released = trio.Event()
        self._rest = trio.Event()
        self._last_beat = -inf
        self._missed = 0
        self.version = ""
        self.pid = 0
        self.working = 0
        self.end: End | None = None

    @property
    def ready(self) -> bool:
        """A page has run script within the last few seconds, and nothing has been seen since."""
        fresh = trio.current_time() - self._last_beat < FRESH
        return fresh and self._missed == 0 and not self.dead

    @property
    def dead(self) -> bool:
        """It can do no more work. One that is being recycled still can."""
        return self.end is not None and self.end.kind is not EndKind.RECYCLED

    @property
    def warm_contexts(self) -> int:
        return len(self._contexts) if self._contexts is not None else 0

    async def wait_ended(self) -> End:
        """Wait until it cannot or should not be used any more."""
        await self._over.wait()
        assert self.end is not None  # noqa: S101 - set before the event
        return self.end

    async def wait_finished(self) -> None:
        """Wait until nothing is done on it any more: it is dead, or was let go."""
        await self._finished.wait()

    def retire(self) -> None:
        """Let it go as soon as the work on it has ended."""
        self._released.set()

    async def use(self, place: Place, job: Callable[[Page], Awaitable[R]]) -> R:
        """Do a piece of work. Raises what the work raises; see `smartlinkd/browser/errors.py`."""
        assert self._contexts is not None  # noqa: S101 - it has started, or nobody could ask
        self.working += 1
        try:
            return await self._contexts.use(place, job)
        finally:
            self.working -= 1
            if self.working == 0:
                self._rest.set()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Launch, serve until the end, leave nothing behind.

        `started()` comes with the first beat. Raises a `Refused` when it does not come to that;
        after it, the end is told by `wait_ended` and this returns.
        """
        async with launch(self._settings.launch) as chromium:
            try:
                await self._serve(chromium, task_status)
            except Disconnected:
                # Not as far as its first beat. What its process says tells more than its socket.
                with trio.move_on_after(EXIT_PATIENCE):
                    raise await chromium.early_end() from None
                raise

    async def _serve(self, chromium: Chromium, task_status: trio.TaskStatus[None]) -> None:
        async with connect(chromium.endpoint) as connection:
            self.version, self.pid = await product(connection), chromium.pid
            canary = await self._hatch(connection)
            if not self._settings.launch.no_sandbox:
                await confirm_sandbox(connection)
            async with trio.open_nursery() as nursery:
                contexts = Contexts(
                    connection, nursery, limit=self._settings.contexts, idle=self._settings.idle
                )
                self._contexts = contexts
                task_status.started()
                nursery.start_soon(contexts.drop_idle)
                nursery.start_soon(self._watch_process, chromium)
                nursery.start_soon(self._watch_connection, connection, chromium)
                nursery.start_soon(self._watch_canary, canary)
                nursery.start_soon(self._watch_size_and_age, chromium)
                nursery.start_soon(self._watch_contexts, contexts)
                nursery.start_soon(self._let_go)
                try:
                    await self._finished.wait()
                finally:
                    nursery.cancel_scope.cancel()

    async def _hatch(self, connection: Connection) -> Page:
        """The canary's page: a blank one in a context of its own, that has given its first beat."""
        context = await BrowserContext.bare(connection)
        canary = await context.new_page(size=CANARY_SIZE)
        # The browser's first script of all may take longer than any that follow.
        await self._beat(canary, deadline=CALL_DEADLINE)
        return canary

    async def _beat(self, canary: Page, *, deadline: float) -> None:
        await canary.evaluate("() => 1", deadline=deadline)
        self._last_beat = trio.current_time()
        self._missed = 0

    async def _watch_canary(self, canary: Page) -> None:
        while self._missed < MISSES:
            await trio.sleep(BEAT_EVERY)
            try:
                await self._beat(canary, deadline=BEAT_DEADLINE)
            except Refused as miss:
                self._missed += 1
                logger.warning("the browser's canary missed a beat: %s", miss)
        self._over_with(EndKind.UNRESPONSIVE, f"no script ran for {MISSES} beats")

    async def _watch_process(self, chromium: Chromium) -> None:
        status = await chromium.wait()
        self._over_with(EndKind.CRASHED, f"Chromium ended: {status}")

    async def _watch_connection(self, connection: Connection, chromium: Chromium) -> None:
        why = await connection.wait_closed()
        self._last_beat = -inf  # whatever it was, there is nothing to work with any more
        with trio.move_on_after(EXIT_PATIENCE):
            await chromium.wait()
            return
        self._over_with(EndKind.DISCONNECTED, why)

    async def _watch_size_and_age(self, chromium: Chromium) -> None:
        born = trio.current_time()
        while self.end is None:
            await trio.sleep(min(MEASURE_EVERY, self._settings.recycle_after))
            age = trio.current_time() - born
            memory = await self._measured(chromium)
            if age >= self._settings.recycle_after:
                self._over_with(EndKind.RECYCLED, f"{age:.0f} s old (browser.recycle_after)")
            elif memory >= self._settings.recycle_memory:
                self._over_with(
                    EndKind.RECYCLED, f"{memory >> 20} MiB in use (browser.recycle_memory)"
                )

    async def _measured(self, chromium: Chromium) -> int:
        """Its memory, or 0 when that cannot be known now: no reason to end one that works."""
        try:
            return await chromium.memory()
        except (OSError, NoThread) as fault:  # no descriptor is left, say
            logger.warning("the browser's memory cannot be measured: %s", fault)
            return 0

    async def _watch_contexts(self, contexts: Contexts) -> None:
        """Let no browser go on for days that keeps accounts' cookies and does not forget them, or
        in which no further account can be served."""
        why = await contexts.wait_spent()
        # One that does not answer at all does neither. That is the canary's to say.
        await trio.sleep(VERDICT)
        self._over_with(EndKind.RECYCLED, why)

    async def _let_go(self) -> None:
        await self._released.wait()
        while self.working:
            self._rest = trio.Event()
            await self._rest.wait()
        self._finished.set()

    def _over_with(self, kind: EndKind, detail: str) -> None:
        """Note the end. The first to notice counts, but for a death after a recycling began."""
        if self.end is None or (kind is not EndKind.RECYCLED and not self.dead):
            self.end = End(kind, detail)
            self._over.set()
            if self.dead:
                self._finished.set()


async def confirm_sandbox(connection: Connection) -> None:
    """Return when all renderers are seen to be confined. Raises LaunchFailed when they are not."""
    patience = trio.current_time() + SANDBOX_PATIENCE
    while not (await sandbox_state(connection)).on:
        if trio.current_time() >= patience:
            raise LaunchFailed(
                f"{SANDBOX_REMEDY}. It started without: does browser.executable turn it off?"
            )
        await trio.sleep(SANDBOX_LOOK_EVERY)
