"""One Chromium, from its launch to its end.

It ends when its process exits, its websocket closes, or its probe page (a "canary") runs no script
for a few seconds: a stopped process keeps its socket open, and a hung one may answer the protocol.
These end it at once. One that is too old, too large or unusable for new tabs is recycled: it serves
on until `actor.py` has the next one ready. See docs/decisions/058-running-chromium.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import TypeVar

import trio

from smartlinkd.browser.cdp import CALL_DEADLINE, CdpConnection, connect
from smartlinkd.browser.chromium import (
    SANDBOX_REMEDY,
    Chromium,
    LaunchSettings,
    is_sandboxed,
    launch,
    product,
)
from smartlinkd.browser.errors import Disconnected, LaunchFailed
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.browser.page import BrowserContext, Page
from smartlinkd.browser.tab_pool import TabPool, TabSpec
from smartlinkd.errors import Refused
from smartlinkd.threads import NoThread

logger = logging.getLogger(__name__)

R = TypeVar("R")

_SANDBOX_POLL_S = 0.05


class EndKind(StrEnum):
    """The kinds of an instance's end, which are also the reasons of a restart."""

    CRASHED = "crashed"
    DISCONNECTED = "disconnected"
    UNRESPONSIVE = "unresponsive"
    RECYCLED = "recycled"  # by choice: it still works
    LAUNCH_FAILED = "launch failed"  # before it began


@dataclass(frozen=True)
class End:
    """The end of an instance, and what was seen of it."""

    kind: EndKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True)
class InstanceSettings:
    """Settings of one instance.

    Attributes:
        contexts: unused contexts that are kept open.
        idle_s: seconds for which each of them is kept.
        recycle_after_s: the age in seconds at which the browser is replaced.
        recycle_bytes: the memory of all of Chromium's processes at which it is replaced.
    """

    launch: LaunchSettings
    contexts: int
    idle_s: float
    recycle_after_s: float
    recycle_bytes: int
    limits: BrowserLimits = field(default_factory=BrowserLimits)


class BrowserInstance:
    """Do jobs on it by `use`, wait for its end by `wait_ended`, let it go by `drain`."""

    def __init__(self, settings: InstanceSettings) -> None:
        self.version = ""
        self.pid = 0
        self.working = 0
        """Jobs under way."""
        self.end: End | None = None
        self._settings = settings
        self._limits = settings.limits
        self._pool: TabPool | None = None
        self._ended = trio.Event()
        self._finished = trio.Event()
        self._is_draining = False
        self._has_run_script = False  # when the probe page was last asked to

    @property
    def is_ready(self) -> bool:
        """True if the last probe succeeded, which is not longer ago than `probe_interval_s` and
        `probe_timeout_s` together."""
        return self._has_run_script and not self.is_dead

    @property
    def is_dead(self) -> bool:
        """True if it can do no more jobs. One that is being recycled still can."""
        return self.end is not None and self.end.kind is not EndKind.RECYCLED

    @property
    def contexts(self) -> int:
        """The number of contexts that are open."""
        return len(self._pool) if self._pool is not None else 0

    async def wait_ended(self) -> End:
        """Wait until it cannot or should not be used any more."""
        await self._ended.wait()
        assert self.end is not None  # noqa: S101 - set before the event
        return self.end

    def drain(self) -> None:
        """Let it end as soon as the jobs on it have ended."""
        self._is_draining = True
        self._finish_if_drained()

    async def use(self, spec: TabSpec, job: Callable[[Page], Awaitable[R]]) -> R:
        """Do a job on a tab. Raises what the job raises, and `BrowserFailed`."""
        assert self._pool is not None  # noqa: S101 - it has started, or nobody could ask
        self.working += 1
        try:
            return await self._pool.use(spec, job)
        finally:
            self.working -= 1
            self._finish_if_drained()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Launch, serve until the end, leave nothing behind.

        `started()` is called after the first probe. Raises a `Refused` if it does not come to that.
        """
        async with launch(self._settings.launch) as chromium:
            try:
                await self._serve(chromium, task_status)
            except Disconnected:
                # Before the first probe. The end of the process tells more than that of the socket.
                with trio.move_on_after(self._limits.exit_wait_s):
                    raise await chromium.early_end() from None
                raise

    async def _serve(self, chromium: Chromium, task_status: trio.TaskStatus[None]) -> None:
        settings, first_steps_s = self._settings, self._limits.first_steps_s
        with trio.move_on_after(first_steps_s) as first_steps:
            async with connect(chromium.endpoint) as connection:
                self.version, self.pid = await product(connection), chromium.pid
                probe_page = await self._open_probe_page(connection)
                if not settings.launch.no_sandbox:
                    await confirm_sandbox(connection, timeout_s=self._limits.sandbox_timeout_s)
                # The last call may have been too late.
                await trio.lowlevel.checkpoint_if_cancelled()
                first_steps.deadline = inf
                async with trio.open_nursery() as nursery:
                    self._pool = pool = TabPool(
                        connection,
                        nursery,
                        size=settings.contexts,
                        idle_s=settings.idle_s,
                        limits=self._limits,
                    )
                    task_status.started()
                    nursery.start_soon(pool.drop_idle)
                    nursery.start_soon(self._watch_process, chromium)
                    nursery.start_soon(self._watch_connection, connection, chromium)
                    nursery.start_soon(self._watch_probe_page, probe_page)
                    nursery.start_soon(self._watch_size_and_age, chromium)
                    nursery.start_soon(self._watch_pool, pool)
                    try:
                        await self._finished.wait()
                    finally:
                        nursery.cancel_scope.cancel()
        if first_steps.cancelled_caught:
            raise LaunchFailed(
                f"Chromium did not answer its first calls within {first_steps_s:g} s"
            )

    async def _open_probe_page(self, connection: CdpConnection) -> Page:
        """Open a blank page in a context of its own, and probe it once."""
        context = await BrowserContext.create(connection, ())
        page = await context.new_page()
        # The browser's first script takes longer than any that follow.
        await probe(page, timeout_s=CALL_DEADLINE)
        self._has_run_script = True
        return page

    async def _watch_probe_page(self, page: Page) -> None:
        failures = 0
        while failures < self._limits.probe_failures:
            await trio.sleep(self._limits.probe_interval_s)
            try:
                await probe(page, timeout_s=self._limits.probe_timeout_s)
                self._has_run_script = True
                failures = 0
            except Refused as failure:
                self._has_run_script = False
                failures += 1
                logger.warning("the browser's canary missed a beat: %s", failure)
        self._end_with(EndKind.UNRESPONSIVE, f"no script ran for {failures} beats")

    async def _watch_process(self, chromium: Chromium) -> None:
        status = await chromium.wait()
        self._end_with(EndKind.CRASHED, f"Chromium ended: {status}")

    async def _watch_connection(self, connection: CdpConnection, chromium: Chromium) -> None:
        why = await connection.wait_closed()
        self._has_run_script = False  # it is not ready, whatever the reason turns out to be
        with trio.move_on_after(self._limits.exit_wait_s):
            await chromium.wait()
            return
        self._end_with(EndKind.DISCONNECTED, why)

    async def _watch_size_and_age(self, chromium: Chromium) -> None:
        born, settings = trio.current_time(), self._settings
        while self.end is None:
            await trio.sleep(min(self._limits.measure_interval_s, settings.recycle_after_s))
            age = trio.current_time() - born
            memory = 0
            with suppress(NoThread):
                memory = await chromium.memory()
            if memory == 0:  # no thread or no descriptor is left
                logger.warning("the browser's memory cannot be measured")
            if age >= settings.recycle_after_s:
                self._end_with(EndKind.RECYCLED, f"{age:.0f} s old (browser.recycle_after)")
            elif memory >= settings.recycle_bytes:
                used = f"{memory >> 20} MiB in use (browser.recycle_memory)"
                self._end_with(EndKind.RECYCLED, used)

    async def _watch_pool(self, pool: TabPool) -> None:
        # A browser must not go on for days with cookies that it does not forget.
        why = await pool.wait_unusable()
        # One that hangs opens and disposes of nothing either. Then the probe page tells.
        await trio.sleep(self._limits.unresponsive_after_s)
        self._end_with(EndKind.RECYCLED, why)

    def _finish_if_drained(self) -> None:
        if self._is_draining and self.working == 0:
            self._finished.set()

    def _end_with(self, kind: EndKind, detail: str) -> None:
        """Record the end. The first one counts, but a death replaces a recycling."""
        if self.end is None or (kind is not EndKind.RECYCLED and not self.is_dead):
            self.end = End(kind, detail)
            self._ended.set()
            if self.is_dead:
                self._finished.set()


async def probe(page: Page, *, timeout_s: float) -> None:
    """Run one line of script in the page. Raises as `Page.evaluate`."""
    await page.evaluate("() => 1", deadline=timeout_s)


async def confirm_sandbox(
    connection: CdpConnection, *, timeout_s: float = BrowserLimits.sandbox_timeout_s
) -> None:
    """Return when the kernel shows that Chromium's sandbox confines all renderers.

    Not every missing sandbox makes Chromium itself refuse: a script in its place may add
    --no-sandbox. Raises `LaunchFailed` if they are not confined in time, and as `is_sandboxed`.
    """
    deadline = trio.current_time() + timeout_s
    while not await is_sandboxed(connection):
        if trio.current_time() >= deadline:
            raise LaunchFailed(
                f"{SANDBOX_REMEDY}. It started without: does browser.executable turn it off?"
            )
        await trio.sleep(_SANDBOX_POLL_S)
