"""A pool of browser contexts, one for each cookie, with the tabs that stay open in them.

To open the portal takes seconds, a call from an open page milliseconds. Any error on a tab, the
cancellation of its job included, invalidates the whole context: it takes no new job, and is
disposed of when its last job has ended. A background task does that, so that the result of a job
is never held up. See docs/decisions/057-tab-pool.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from smartlinkd.browser.cdp import CdpConnection
from smartlinkd.browser.errors import BrowserFailed, CallTimedOut
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.browser.page import BrowserContext, Page
from smartlinkd.errors import Refused

logger = logging.getLogger(__name__)

R = TypeVar("R")


@dataclass(frozen=True)
class TabSpec:
    """A tab to do a job on: in which context it is, and how it is opened.

    Attributes:
        key: names the context: jobs of the same key share its cookies.
        cookies: returns the cookies of a new context (CDP's Network.CookieParam).
        tab: names the tab in the context.
        open_tab: makes the tab ready for its jobs. It is called again when the tab shows another
            document, unless the jobs navigate by themselves (`is_navigated`).
        invalidates: called with each URL that the tab shows and `is_other`, as a `UrlListener`.
            True if the context must not be used any more.
        concurrency: jobs that may use the tab at the same time.
    """

    key: str
    cookies: Callable[[], Sequence[Mapping[str, object]]] = field(repr=False)
    tab: str
    open_tab: Callable[[Page], Awaitable[None]]
    invalidates: Callable[[str, bool], bool]
    concurrency: int = 1
    is_navigated: bool = False


class _Tab:
    def __init__(self, concurrency: int) -> None:
        self.page: Page | None = None
        self.opening = trio.Lock()
        self.slots = trio.Semaphore(concurrency)
        self.users = 0
        self.last_well = 0.0  # on trio's clock
        self.opened_document: int | None = None  # `Page.document_count` after `open_tab`

    def is_open(self, spec: TabSpec, page: Page) -> bool:
        """True if the tab is where `open_tab` left it, or was opened and its jobs navigate."""
        if self.opened_document is None:
            return False
        return spec.is_navigated or self.opened_document == page.document_count


class _PooledContext:
    """One context of the pool. The first job creates it."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.context: BrowserContext | None = None
        self.creating = trio.Lock()
        self.tabs: dict[str, _Tab] = {}
        self.users = 0
        self.last_used = trio.current_time()


class TabPool:
    """The contexts of one browser.

    Args:
        nursery: runs what closes tabs and disposes of contexts. Once it is cancelled the browser is
            about to end, and takes everything with it.
        size: unused contexts that are kept.
        idle_s: seconds after its last use until an unused context is disposed of.
    """

    def __init__(
        self,
        connection: CdpConnection,
        nursery: trio.Nursery,
        *,
        size: int,
        idle_s: float,
        limits: BrowserLimits,
    ) -> None:
        self._connection = connection
        self._nursery = nursery
        self._size = size
        self._idle_s = idle_s
        self._limits = limits
        self._contexts: dict[str, _PooledContext] = {}
        self._starts = trio.Semaphore(limits.concurrent_starts)
        self._cleanups: set[tuple[str, trio.Event]] = set()  # keys, and what is set when done
        self._failed_tabs = 0  # in a row
        self._unusable = trio.Event()
        self._why_unusable = ""

    def __len__(self) -> int:
        return len(self._contexts)

    async def use(self, spec: TabSpec, job: Callable[[Page], Awaitable[R]]) -> R:
        """Do `job` on the tab, which is opened first if it is not. Raises what either raises."""
        while True:
            pooled = self._contexts.setdefault(spec.key, _PooledContext(spec.key))
            tab = pooled.tabs.setdefault(spec.tab, _Tab(spec.concurrency))
            pooled.users += 1
            tab.users += 1
            try:
                async with tab.slots:
                    page = await self._prepare_page(pooled, tab, spec)
                    if page is not None:
                        with self._invalidating(pooled):
                            result = await job(page)
                        tab.last_well = trio.current_time()
                        return result
            finally:
                self._release(pooled, tab)

    async def drop_idle(self) -> None:
        """Dispose of contexts as they become idle, until cancelled."""
        while True:
            await trio.sleep(self._idle_s / 4)
            before = trio.current_time() - self._idle_s
            self._drop([each for each in self._unused() if each.last_used <= before])

    async def wait_unusable(self) -> str:
        """Wait until the browser opens no more tabs, or disposes of no context. Return which."""
        await self._unusable.wait()
        return self._why_unusable

    def _unused(self) -> list[_PooledContext]:
        return [pooled for pooled in self._contexts.values() if pooled.users == 0]

    async def _prepare_page(self, pooled: _PooledContext, tab: _Tab, spec: TabSpec) -> Page | None:
        """Return the open tab, or None if the context was invalidated while this waited."""
        context = await self._prepare_context(pooled, spec)
        async with tab.opening:
            if context is None or not self._is_valid(pooled):
                return None
            if tab.page is not None and not await self._is_well(tab, tab.page, spec):
                # It broke while no job used it, so no job has to fail.
                self._invalidate(pooled)
                return None
            if tab.page is None:
                async with self._starts:
                    if not self._is_valid(pooled):
                        return None
                    with self._invalidating(pooled):
                        # Kept at once: whoever is cancelled while the tab opens has it closed.
                        tab.page = await self._new_page(context)
                        tab.page.set_url_listener(partial(self._handle_url, pooled, spec))
            if not tab.is_open(spec, tab.page):
                with self._invalidating(pooled):
                    await spec.open_tab(tab.page)
                tab.opened_document = tab.page.document_count
                tab.last_well = trio.current_time()
            return tab.page if self._is_valid(pooled) else None

    async def _prepare_context(
        self, pooled: _PooledContext, spec: TabSpec
    ) -> BrowserContext | None:
        """Return the context, or None if it was invalidated while this waited."""
        async with pooled.creating:
            if not self._is_valid(pooled):
                return None
            if pooled.context is None:
                for key, done in tuple(self._cleanups):
                    if key == pooled.key:
                        await done.wait()
                async with self._starts:
                    with self._invalidating(pooled):
                        pooled.context = await BrowserContext.create(
                            self._connection, spec.cookies()
                        )
            return pooled.context

    async def _new_page(self, context: BrowserContext) -> Page:
        began = trio.current_time()
        try:
            page = await context.new_page()
        except (CallTimedOut, trio.Cancelled):  # a caller may have less time than a call
            if trio.current_time() - began >= self._limits.tab_failure_s:
                self._failed_tabs += 1
            if self._failed_tabs >= self._limits.tab_failures:
                self._set_unusable("it opened no more tabs")
            raise
        self._failed_tabs = 0
        return page

    async def _is_well(self, tab: _Tab, page: Page, spec: TabSpec) -> bool:
        is_trusted = trio.current_time() - tab.last_well < self._limits.trusted_for_s
        # A tab that has left its page goes to `open_tab`, which looks where it is: the page of a
        # human check may be too busy to answer.
        if not page.is_gone and (is_trusted or not tab.is_open(spec, page)):
            return True
        try:
            await page.evaluate("() => 1", deadline=self._limits.tab_probe_timeout_s)
        except BrowserFailed as failure:
            logger.info("a tab that nobody was using is opened anew: %s", failure)
            return False
        tab.last_well = trio.current_time()
        return True

    def _is_valid(self, pooled: _PooledContext) -> bool:
        # A context in use leaves the pool only when it is invalidated.
        return self._contexts.get(pooled.key) is pooled

    @contextmanager
    def _invalidating(self, pooled: _PooledContext) -> Iterator[None]:
        """Invalidate the context if the block fails or is cancelled."""
        try:
            yield
        except BaseException:
            self._invalidate(pooled)
            raise

    def _invalidate(self, pooled: _PooledContext) -> None:
        if self._is_valid(pooled):
            del self._contexts[pooled.key]

    def _handle_url(self, pooled: _PooledContext, spec: TabSpec, url: str, is_other: bool) -> None:
        # Also called while no job is on the tab.
        if spec.invalidates(url, is_other):
            self._invalidate(pooled)
            if pooled.users == 0:
                self._dispose(pooled)

    def _release(self, pooled: _PooledContext, tab: _Tab) -> None:
        pooled.users -= 1
        tab.users -= 1
        pooled.last_used = trio.current_time()
        if pooled.context is None and pooled.users == 0:
            self._invalidate(pooled)  # it was never created
        if not self._is_valid(pooled):
            if pooled.users == 0:
                self._dispose(pooled)
            elif tab.users == 0:
                # Nothing goes on at the portal that its caller has given up.
                self._close(pooled, tab)
            return
        unused = sorted(self._unused(), key=lambda each: each.last_used)
        self._drop(unused[: max(0, len(unused) - self._size)])

    def _drop(self, unused: Sequence[_PooledContext]) -> None:
        for pooled in unused:
            self._invalidate(pooled)
            self._dispose(pooled)

    def _close(self, pooled: _PooledContext, tab: _Tab) -> None:
        page, tab.page = tab.page, None
        if page is not None:
            self._start_cleanup(pooled.key, partial(self._close_page, page))

    def _dispose(self, pooled: _PooledContext) -> None:
        context, pooled.context = pooled.context, None
        if context is not None:
            self._start_cleanup(pooled.key, partial(self._dispose_context, context))

    def _start_cleanup(self, key: str, cleanup: Callable[[], Awaitable[None]]) -> None:
        if not self._nursery.cancel_scope.cancel_called:
            done = trio.Event()
            self._cleanups.add((key, done))
            self._nursery.start_soon(self._clean_up, key, cleanup, done)

    async def _clean_up(
        self, key: str, cleanup: Callable[[], Awaitable[None]], done: trio.Event
    ) -> None:
        try:
            await cleanup()
        finally:
            done.set()
            self._cleanups.remove((key, done))

    async def _dispose_context(self, context: BrowserContext) -> None:
        timeout_s = self._limits.dispose_timeout_s
        with trio.move_on_after(timeout_s) as scope:
            try:
                await context.dispose()
            except Refused as refusal:
                # The browser is going down, and takes the context with it.
                logger.info("a browser context could not be disposed of: %s", refusal)
        if scope.cancelled_caught:
            logger.warning("the browser did not dispose of a context in %g s", timeout_s)
            self._set_unusable("it did not dispose of a context")

    async def _close_page(self, page: Page) -> None:
        with trio.move_on_after(self._limits.dispose_timeout_s):
            try:
                await page.close()
            except Refused as refusal:
                # It goes with its context, or with the browser.
                logger.info("a tab could not be closed: %s", refusal)

    def _set_unusable(self, why: str) -> None:
        self._why_unusable = self._why_unusable or why
        self._unusable.set()
