"""The browser actor with a real Chromium, and what happens to real browsers.

That nothing of any of them is left, no process, no folder, no descriptor, is in `profiles`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import trio

from smartlinkd.browser.actor import Browser
from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import NavigationFailed, SessionGone
from smartlinkd.browser.instance import InstanceSettings
from smartlinkd.browser.limits import BrowserLimits
from smartlinkd.browser.page import Page
from smartlinkd.browser.tab_pool import TabSpec
from smartlinkd.supervision.policy import Backoff
from tests.browser.jobs import instance_settings, never_invalid

pytestmark = pytest.mark.chromium

SOON = 10.0  # seconds; a busy machine may need a few


@pytest.fixture
def kept_up(settings: LaunchSettings) -> InstanceSettings:
    return instance_settings(settings, contexts=4, recycle_bytes=1 << 34)


@asynccontextmanager
async def running(settings: InstanceSettings) -> AsyncIterator[Browser]:
    """The actor for the length of the block, with a browser that is ready."""
    browser = Browser(settings, queue=8, backoff=Backoff(first=0.05), on_down=lambda _why: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(browser.run)
        await until_ready(browser)
        yield browser
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(SOON):
        while not condition():  # noqa: ASYNC110 - most of what it waits for is no event of ours
            await trio.sleep(0.005)


async def until_ready(browser: Browser, *, restarts: int = 0) -> None:
    await until(lambda: browser.is_ready and browser.status().restarts >= restarts)


def reasons(browser: Browser) -> set[str]:
    """Why it was restarted."""
    return {reason for reason, count in browser.restarts.items() if count}


def tab_spec(site: Any, key: str = "a") -> TabSpec:
    async def open_tab(page: Page) -> None:
        await page.goto(site.url())

    def cookies() -> list[dict[str, object]]:
        return [{"name": "key", "value": key, "url": site.url()}]

    return TabSpec(key, cookies, "tab", open_tab, never_invalid)


async def cookie(page: Page) -> object:
    return await page.evaluate("() => document.cookie")


async def test_stopped_browser_is_replaced_as_unresponsive(
    kept_up: InstanceSettings, site: Any
) -> None:
    limits = BrowserLimits(probe_interval_s=0.2, probe_timeout_s=0.5)
    async with running(replace(kept_up, limits=limits)) as browser:
        before = browser.status().pid
        assert before is not None
        os.kill(before, signal.SIGSTOP)
        await until_ready(browser, restarts=1)
        assert reasons(browser) == {"unresponsive"}
        assert await browser.use(tab_spec(site), cookie) == "key=a"


async def test_killed_renderer_fails_its_own_job_only(kept_up: InstanceSettings, site: Any) -> None:
    async def die(page: Page) -> None:
        with suppress(NavigationFailed):
            await page.goto("chrome://kill")
        await page.evaluate("() => 1")

    async with running(kept_up) as browser:
        assert await browser.use(tab_spec(site, "other"), cookie) == "key=other"
        with pytest.raises(SessionGone):
            await browser.use(tab_spec(site), die)
        assert browser.is_ready
        for key in ("a", "other"):
            assert await browser.use(tab_spec(site, key), cookie) == f"key={key}"
        assert browser.status().restarts == 0
