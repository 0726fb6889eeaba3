"""The `subject` of the browser contract tests.

Each test that uses it runs twice: with the fake Chromium and the sandbox's apps, and with a real
Chromium and the sandbox.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from smartlinkd.browser.cdp import CdpConnection, connect
from smartlinkd.browser.chromium import Chromium, LaunchSettings, launch
from smartlinkd.browser.page import BrowserContext, Page
from smartlinkd.marketplace.cookies import browser_cookies
from smartlinkd.marketplace.markets import Market, market
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.server import open_sandbox
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.vault.cookie import parse_cookie
from tests.fakes.machine import Machine, Process
from tests.fakes.network import ORIGINS, Network


@dataclass
class Subject:
    """A browser, a CDP connection to it, and the portal that it visits."""

    connection: CdpConnection
    portal: SandboxState
    origins: Origins
    process: Process | Chromium

    @property
    def market(self) -> Market:
        return market(
            "vn",
            portal_url=self.origins.portal,
            shop_url=self.origins.shop,
            short_urls=(self.origins.short,),
        )

    async def page(self, account: str = "") -> Page:
        """Open a tab in a new context, with the account's cookies; without an account, none."""
        cookies = (
            browser_cookies(self.market, parse_cookie(cookie_header(account))) if account else []
        )
        context = await BrowserContext.create(self.connection, cookies)
        return await context.new_page()

    def send(self, number: signal.Signals) -> None:
        """Send the browser's main process SIGKILL, SIGSTOP or SIGCONT."""
        if isinstance(self.process, Process):
            browser = self.process.browser
            fake = {signal.SIGKILL: self.process.kill, signal.SIGSTOP: browser.stop}
            fake.get(number, browser.resume)()
        else:
            os.kill(self.process.pid, number)

    async def crash(self, page: Page) -> None:
        """Kill the page's renderer. Of a real browser all renderers are killed."""
        if isinstance(self.process, Process):
            self.process.browser.tabs[page.target_id].crash()
            return
        told = await self.connection.browser.call("SystemInfo.getProcessInfo")
        for process in told["processInfo"]:
            if process["type"] == "renderer":
                os.kill(process["id"], signal.SIGKILL)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.chromium)])
async def subject(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[Subject]:
    if request.param == "fake":
        network = Network()
        machine = Machine(tmp_path, network)
        machine.install(monkeypatch)
        settings = LaunchSettings(executable=machine.executable, profiles=machine.profiles)
        async with (
            launch(settings) as chromium,
            machine.connect(chromium.endpoint) as connection,
        ):
            yield Subject(connection, network.portal, ORIGINS, machine.process)
    else:
        async with (
            open_sandbox() as sandbox,
            launch(LaunchSettings()) as chromium,
            connect(chromium.endpoint) as connection,
        ):
            yield Subject(connection, sandbox, sandbox.origins, chromium)
