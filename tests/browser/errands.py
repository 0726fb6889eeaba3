"""Pieces of work for the warm contexts of a browser that is played."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.browser.tab_pool import Contexts, Place
from smartlinkd.errors import Refused

if TYPE_CHECKING:
    from tests.browser.played import PlayedPage

LIMIT = 2
IDLE = 100.0


async def open_tab(page: Any) -> None:
    await page.evaluate("")
    page.documents += 1
    page.opened += 1


def goes_anywhere(_url: str, _beside: bool) -> bool:
    """Nothing that the tab shows speaks against it."""
    return False


def place(
    key: str = "a",
    tab: str = "links",
    *,
    at_once: int = 1,
    elsewhere: bool = False,
    open_tab: Callable[[Any], Awaitable[None]] = open_tab,
    spoils: Callable[[str, bool], bool] = goes_anywhere,
) -> Place:
    cookies = [{"name": "n", "value": key}]
    return Place(key, lambda: cookies, tab, open_tab, spoils, at_once, elsewhere)


class Job:
    """A piece of work that goes on until it is told how to end, and what became of it."""

    def __init__(self, contexts: Contexts, where: Place) -> None:
        self.page: PlayedPage | None = None
        self.end = trio.Event()
        self.fails: Exception | None = None
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.error: Exception | None = None
        self._contexts = contexts
        self._place = where

    async def run(self) -> None:
        try:
            with self.scope:
                await self._contexts.use(self._place, self._work)
        except Refused as failure:
            self.error = failure
        self.done.set()

    async def _work(self, page: Any) -> None:
        self.page = page
        await self.end.wait()
        if self.fails is not None:
            raise self.fails


class Desk:
    """Gives out pieces of work."""

    def __init__(self, contexts: Contexts, nursery: trio.Nursery) -> None:
        self.contexts = contexts
        self._nursery = nursery

    async def begin(self, where: Place) -> Job:
        """Returns when all wait: the work has begun, or its turn has not come."""
        job = Job(self.contexts, where)
        self._nursery.start_soon(job.run)
        await wait_all_tasks_blocked()
        return job

    async def do(self, where: Place) -> PlayedPage:
        """Work that ends well."""
        job = await self.begin(where)
        await finish(job)
        assert job.page is not None
        return job.page


async def finish(job: Job, error: Exception | None = None) -> None:
    """Returns when it has ended, and what it leaves behind is cleared away or waited for."""
    job.fails = error
    job.end.set()
    await job.done.wait()
    assert job.error is error
    await wait_all_tasks_blocked()


async def cancel(job: Job) -> None:
    """As `finish`, of a job that is given up."""
    job.scope.cancel()
    await job.done.wait()
    await wait_all_tasks_blocked()
