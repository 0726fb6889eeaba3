"""A page in the daemon's browser cannot reach the daemon, under any name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from smartlinkd.browser.cdp import connect
from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.browser.page import BrowserContext

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal

pytestmark = pytest.mark.chromium


def endpoint(daemon: Daemon) -> str:
    """Return the DevTools address of the daemon's browser, which any local user can find."""
    (told,) = daemon.program.folder.glob("smartlinkd-chromium-*/DevToolsActivePort")
    port, path = told.read_text().split("\n")
    return f"ws://127.0.0.1:{port}{path}"


async def test_page_in_the_browser_does_not_reach_the_daemon(
    daemon: Daemon, portal: Portal
) -> None:
    own = daemon.url.rpartition(":")[2]
    async with connect(endpoint(daemon)) as connection:
        context = await BrowserContext.create(connection, ())
        page = await context.new_page()
        for host in ("127.0.0.1", "localhost", "anything.localhost", "[::1]"):
            with pytest.raises(NavigationFailed, match="net::ERR_NAME_NOT_RESOLVED"):
                await page.goto(f"http://{host}:{own}/api/sync-cookie")
        await page.goto(portal.origins.portal)
        await context.dispose()
