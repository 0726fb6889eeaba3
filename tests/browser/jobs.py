"""Jobs for the tab pool of a browser that is played."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.browser.page import Page
from smartlinkd.browser.tab_pool import TabPool, TabSpec
from smartlinkd.errors import Refused

if TYPE_CHECKING:
    from tests.browser.played import PlayedPage

POOL_SIZE = 2
IDLE = 100.0
LIMITS = BrowserLimits()


def instance_settings(launch: LaunchSettings | None = None, **changes: Any) -> InstanceSettings:
    """Return settings of an instance that is not recycled within a test, with `changes`."""
    settings = InstanceSettings(
        launch=launch or LaunchSettings(),
        contexts=2,
        idle_s=10_000,
        recycle_after_s=100_000,
        recycle_bytes=1 << 30,
    )
    return replace(settings, **changes)


async def open_tab(page: Any) -> None:
    await page.evaluate("")
    page.document_count += 1
    page.opened += 1


async def nothing(_: object) -> None:
    """Do nothing with a page."""
    await trio.lowlevel.checkpoint()


def never_invalid(_url: str, _is_other: bool) -> bool:
    """Return False: no URL invalidates the context."""
    return False


def tab_spec(
    key: str = "a",
    tab: str = "links",
    *,
    concurrency: int = 1,
    is_navigated: bool = False,
    open_tab: Callable[[Any], Awaitable[None]] = open_tab,
    invalidates: Callable[[str, bool], bool] = never_invalid,
) -> TabSpec:
    cookies = [{"name": "n", "value": key}]
    return TabSpec(
        key=key,
        cookies=lambda: cookies,
        tab=tab,
        open_tab=open_tab,
        invalidates=invalidates,
        concurrency=concurrency,
        is_navigated=is_navigated,
    )


class TabUser(Protocol):
    async def use(self, spec: TabSpec, job: Callable[[Page], Awaitable[None]], /) -> None: ...


class Job:
    """A job that goes on until `end` is set, and its outcome.

    Args:
        user: runs the job: a pool, an instance or the actor.
        spec: the job's tab.
        calls_at_end: whether the job calls its page before it ends.
    """

    def __init__(self, user: TabUser, spec: TabSpec, *, calls_at_end: bool = False) -> None:
        self.page: PlayedPage | None = None
        self.end = trio.Event()
        self.fails: Exception | None = None
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.error: Exception | None = None
        self._user = user
        self._spec = spec
        self._calls_at_end = calls_at_end

    async def run(self) -> None:
        try:
            with self.scope:
                await self._user.use(self._spec, self._work)
        except Refused as failure:
            self.error = failure
        self.done.set()

    async def _work(self, page: Any) -> None:
        self.page = page
        await self.end.wait()
        if self.fails is not None:
            raise self.fails
        if self._calls_at_end:
            await page.evaluate("")


async def begin_job(
    user: TabUser, spec: TabSpec, nursery: trio.Nursery, *, calls_at_end: bool = False
) -> Job:
    """Start a job. Returns when it has begun, or waits for its tab."""
    job = Job(user, spec, calls_at_end=calls_at_end)
    nursery.start_soon(job.run)
    await wait_all_tasks_blocked()
    return job


class JobRunner:
    """Starts jobs on the pool."""

    def __init__(self, pool: TabPool, nursery: trio.Nursery) -> None:
        self.pool = pool
        self._nursery = nursery

    async def begin(self, spec: TabSpec) -> Job:
        return await begin_job(self.pool, spec, self._nursery)

    async def do(self, spec: TabSpec) -> PlayedPage:
        """Do a job that succeeds, and return its page."""
        job = await self.begin(spec)
        await finish(job)
        assert job.page is not None
        return job.page


async def finish(job: Job, error: Exception | None = None) -> None:
    """Let the job end. Returns when all that follows is done or waits."""
    job.fails = error
    job.end.set()
    await job.done.wait()
    assert job.error is error
    await wait_all_tasks_blocked()


async def cancel(job: Job) -> None:
    """Cancel the job. Returns as `finish` does."""
    job.scope.cancel()
    await job.done.wait()
    await wait_all_tasks_blocked()
