"""The warm browser contexts: one for each account cookie, with its tabs.

Opening the portal takes seconds, using an open page takes as long as the portal's answer. So each
cookie has a browser context of its own (which shares nothing with another one, cookies and cache
included), whose tabs stay open between pieces of work. What is warm may also be stale: any error on
a tab, the cancellation of its work among them, spoils the whole context. A spoiled context takes no
new work, also none that had been waiting for it, and is disposed of when the last piece of work on
it has ended; a tab of it is closed as soon as nobody is at work on that, so that nothing goes on at
the portal that somebody has given up. Who only waits, for a tab or for it to be opened, spoils
nothing by leaving. Nor does a tab that was taken elsewhere by its own script: it is opened again,
unless where it is says that nothing more should be done there.

Clearing away takes milliseconds, or seconds when the browser is busy, and what the work has found
is known before: a human check must not get lost with somebody who leaves in that time. So it is
done in a task of the browser's. Only who comes next with the same cookie waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from smartlinkd.browser.cdp import Connection
from smartlinkd.browser.errors import BrowserFailed, CallTimedOut
from smartlinkd.browser.page import BrowserContext, Page
from smartlinkd.errors import Refused

logger = logging.getLogger(__name__)

R = TypeVar("R")

STARTS_AT_ONCE = 2
"""Contexts and tabs being made at the same time. Each starts a process: a dozen at once keep a
small machine, and the browser's own main thread, from everything else for seconds."""

TRUSTED_FOR = 30.0
"""Seconds after its last work for which a tab is taken for well: to ask costs a conversion half a
millisecond."""

SIGN_DEADLINE = 2.0
"""Seconds for a sign of life: one line of script, as the canary's."""

MOST_UNOPENED = 2
"""Tabs in a row that did not come up before a browser is taken for one that opens none any more:
the canary's is open, and says nothing of that."""

OPEN_PATIENCE = 5.0
"""Seconds after which one has not come up. It takes a tenth, and seconds on a busy machine."""

DISPOSE_PATIENCE = 2.0
"""Seconds to wait for the browser to dispose of a context; it takes milliseconds when well."""


@dataclass(frozen=True)
class Place:
    """Where a piece of work is done: which cookie's context, and which of its tabs.

    `cookies` lays out those of a new context, once for all its tabs. `open_tab` makes a tab ready
    for all the work it will see. Once the tab shows another document it is called again, unless
    the work itself takes the tab `elsewhere`. `spoils` is told each URL that the tab shows, and
    whether only beside its document (see `Watch`), and says whether the context is of no use then.
    `at_once` pieces of work may use the tab at the same time.
    """

    key: str
    cookies: Callable[[], Sequence[Mapping[str, object]]] = field(repr=False)
    tab: str
    open_tab: Callable[[Page], Awaitable[None]]
    spoils: Callable[[str, bool], bool]
    at_once: int = 1
    elsewhere: bool = False


class _Tab:
    def __init__(self, at_once: int) -> None:
        self.page: Page | None = None
        self.opening = trio.Lock()
        self.hands = trio.Semaphore(at_once)
        self.users = 0
        self.well_at = 0.0
        self.opened: int | None = None  # `Page.documents` then

    def is_open(self, place: Place, page: Page) -> bool:
        """Whether it is where `open_tab` left it, or has only to have been there."""
        return self.opened is not None and (place.elsewhere or self.opened == page.documents)


class _Warm:
    """One context, made at its first use."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.context: BrowserContext | None = None
        self.making = trio.Lock()
        self.tabs: dict[str, _Tab] = {}
        self.users = 0
        self.last_used = trio.current_time()


class Contexts:
    """At most `limit` contexts that nobody uses, each for `idle` seconds after its last use.

    `nursery` clears away what is spoiled or surplus. Once it is cancelled the browser is about to
    end, and takes everything with it.
    """

    def __init__(
        self, connection: Connection, nursery: trio.Nursery, *, limit: int, idle: float
    ) -> None:
        self._connection = connection
        self._nursery = nursery
        self._limit = limit
        self._idle = idle
        self._warm: dict[str, _Warm] = {}
        self._starts = trio.Semaphore(STARTS_AT_ONCE)
        self._clearing: dict[str, set[trio.Event]] = {}  # by key: set when it is cleared away
        self._unopened = 0  # tabs in a row
        self._spent = trio.Event()
        self._why_spent = ""

    def __len__(self) -> int:
        return len(self._warm)

    async def use(self, place: Place, job: Callable[[Page], Awaitable[R]]) -> R:
        """Do `job` on the place's tab, which is made and opened if it is not there yet."""
        while True:
            warm = self._warm.setdefault(place.key, _Warm(place.key))
            tab = warm.tabs.setdefault(place.tab, _Tab(place.at_once))
            warm.users += 1
            tab.users += 1
            try:
                async with tab.hands:
                    page = await self._page(warm, tab, place)
                    if page is not None:
                        with self._spoiling(warm):
                            done = await job(page)
                        tab.well_at = trio.current_time()
                        return done
            finally:
                self._leave(warm, tab)

    async def drop_idle(self) -> None:
        """Dispose of contexts as they become idle. Runs until cancelled."""
        while True:
            await trio.sleep(self._idle / 4)
            now = trio.current_time()
            unused = [warm for warm in self._warm.values() if warm.users == 0]
            self._drop([warm for warm in unused if now - warm.last_used >= self._idle])

    async def wait_spent(self) -> str:
        """Wait until the browser has turned out to be of no more use for contexts: why."""
        await self._spent.wait()
        return self._why_spent

    async def _context(self, warm: _Warm, place: Place) -> BrowserContext | None:
        """None when the context was spoiled while this waited."""
        async with warm.making:
            if self._is_spoiled(warm):
                return None
            if warm.context is None:
                for cleared in tuple(self._clearing.get(warm.key, ())):
                    await cleared.wait()
                async with self._starts:
                    with self._spoiling(warm):
                        cookies = place.cookies()
                        warm.context = await BrowserContext.create(self._connection, cookies)
            return warm.context

    async def _page(self, warm: _Warm, tab: _Tab, place: Place) -> Page | None:
        """None when the context was spoiled while this waited."""
        context = await self._context(warm, place)
        async with tab.opening:
            if context is None or self._is_spoiled(warm):
                return None
            if tab.page is not None and not await self._is_well(tab, tab.page, place):
                # That came while nobody was at work on it: no reason for anybody's work to fail.
                self._spoil(warm)
                return None
            if tab.page is None:
                async with self._starts:
                    if self._is_spoiled(warm):
                        return None
                    with self._spoiling(warm):
                        # The tab's from now on: who gives up its opening has it closed.
                        tab.page = await self._new_page(context)
                        tab.page.watch(partial(self._shown, warm, place))
            if not tab.is_open(place, tab.page):
                with self._spoiling(warm):
                    await place.open_tab(tab.page)
                tab.opened = tab.page.documents
                tab.well_at = trio.current_time()
            return None if self._is_spoiled(warm) else tab.page

    async def _new_page(self, context: BrowserContext) -> Page:
        began = trio.current_time()
        try:
            page = await context.new_page()
        except (CallTimedOut, trio.Cancelled):  # who wants it may have less time than a call
            if trio.current_time() - began >= OPEN_PATIENCE:
                self._unopened += 1
            if self._unopened >= MOST_UNOPENED:
                self._note_spent("it opened no more tabs")
            raise
        self._unopened = 0
        return page

    async def _is_well(self, tab: _Tab, page: Page, place: Place) -> bool:
        trusted = trio.current_time() - tab.well_at < TRUSTED_FOR
        # Of one that has left, `open_tab` is to see where it is: a check's page may be too busy.
        if not page.gone and (trusted or not tab.is_open(place, page)):
            return True
        try:
            await page.evaluate("() => 1", deadline=SIGN_DEADLINE)
        except BrowserFailed as failure:
            logger.info("a tab that nobody was using is opened anew: %s", failure)
            return False
        tab.well_at = trio.current_time()
        return True

    def _is_spoiled(self, warm: _Warm) -> bool:
        # What has users leaves the table by being spoiled, and in no other way.
        return self._warm.get(warm.key) is not warm

    @contextmanager
    def _spoiling(self, warm: _Warm) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._spoil(warm)
            raise

    def _spoil(self, warm: _Warm) -> None:
        if not self._is_spoiled(warm):
            del self._warm[warm.key]

    def _shown(self, warm: _Warm, place: Place, url: str, beside: bool) -> None:
        """A tab of it shows this, also while nobody is at work on it."""
        if place.spoils(url, beside):
            self._spoil(warm)
            if warm.users == 0:
                self._dispose(warm)

    def _leave(self, warm: _Warm, tab: _Tab) -> None:
        warm.users -= 1
        tab.users -= 1
        warm.last_used = trio.current_time()
        if warm.context is None and warm.users == 0:
            self._spoil(warm)  # who left before it was made: there is nothing to keep warm
        if self._is_spoiled(warm):
            if warm.users == 0:
                self._dispose(warm)
            elif tab.users == 0:
                self._close(warm, tab)
            return
        unused = [warm for warm in self._warm.values() if warm.users == 0]
        unused.sort(key=lambda warm: warm.last_used)
        self._drop(unused[: max(0, len(unused) - self._limit)])

    def _drop(self, unused: Sequence[_Warm]) -> None:
        for warm in unused:
            self._spoil(warm)
            self._dispose(warm)

    def _close(self, warm: _Warm, tab: _Tab) -> None:
        page, tab.page = tab.page, None
        if page is not None:
            self._clear_away(warm.key, partial(_closed, page))

    def _dispose(self, warm: _Warm) -> None:
        context, warm.context = warm.context, None
        if context is not None:
            self._clear_away(warm.key, partial(self._disposed_of, context))

    def _clear_away(self, key: str, clear: Callable[[], Awaitable[None]]) -> None:
        if self._nursery.cancel_scope.cancel_called:
            return
        cleared = trio.Event()
        self._clearing.setdefault(key, set()).add(cleared)
        self._nursery.start_soon(self._clear, key, clear, cleared)

    async def _clear(
        self, key: str, clear: Callable[[], Awaitable[None]], cleared: trio.Event
    ) -> None:
        try:
            await clear()
        finally:
            cleared.set()
            self._clearing[key].remove(cleared)
            if not self._clearing[key]:
                del self._clearing[key]

    async def _disposed_of(self, context: BrowserContext) -> None:
        with trio.move_on_after(DISPOSE_PATIENCE) as patience:
            try:
                await context.dispose()
            except Refused as refusal:
                # The browser is going down, and takes the context with it.
                logger.info("a browser context could not be disposed of: %s", refusal)
        if patience.cancelled_caught:
            logger.warning("the browser did not dispose of a context in %g s", DISPOSE_PATIENCE)
            self._note_spent("it did not dispose of a context")

    def _note_spent(self, why: str) -> None:
        self._why_spent = self._why_spent or why
        self._spent.set()


async def _closed(page: Page) -> None:
    with trio.move_on_after(DISPOSE_PATIENCE):
        try:
            await page.close()
        except Refused as refusal:
            # It goes with its context, or with the browser.
            logger.info("a tab could not be closed: %s", refusal)
