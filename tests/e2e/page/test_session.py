"""The owner's session ends while a page is open; the page then shows and does nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon as Converting
    from tests.e2e.conftest import Portal
    from tests.e2e.page.conftest import Daemon
    from tests.e2e.page.tab import Tab

pytestmark = pytest.mark.chromium


async def test_end_of_session_asks_for_the_password_and_keeps_what_was_typed(
    daemon: Daemon, tab: Tab
) -> None:
    await tab.open("crews/asking/run", session=daemon.session)
    await tab.type("topic required", "typed before")
    await daemon.end_all_sessions()
    await tab.see("The session has ended", but_not="topic")
    await tab.log_in(daemon.password, daemon.totp.at(time.time() + 30))
    await tab.see("topic")
    assert await tab.evaluate("document.querySelector('textarea').value") == "typed before"


async def test_ended_session_starts_no_execution(daemon: Daemon, tab: Tab) -> None:
    token = await daemon.token_of("asking")
    await tab.open("crews/asking/run", session=daemon.session)
    await tab.type("topic required", "too late")
    await daemon.end_all_sessions()
    await tab.click("button", "Run")
    await tab.see("The session has ended")
    assert await daemon.executions("asking", token) == []


@pytest.mark.parametrize("place", ["/{}", ""])
async def test_ended_session_follows_no_execution(daemon: Daemon, tab: Tab, place: str) -> None:
    kickoff_id = await daemon.kick_off("endless", {})
    await tab.open("crews/endless/executions" + place.format(kickoff_id), session=daemon.session)
    await tab.see("running")
    await daemon.end_all_sessions()
    await tab.see("The session has ended", but_not="running")


async def test_answer_that_comes_after_a_log_out_does_not_log_in_again(
    converting: Converting, portal: Portal, shop: Tab
) -> None:
    await shop.open("convert", session=await converting.page_session())
    await shop.see("Convert links")
    await shop.evaluate(
        """(() => {
            const real = fetch;
            window.fetch = async (url, options) => {
                const answer = await real(url, options);
                if (/api.convert$/.test(url)) await new Promise((go) => (window.release = go));
                return answer;
            };
        })()"""
    )
    await shop.type("Text with product links", portal.link(portal.item()))
    await shop.click("button", "Convert")
    await shop.until("Boolean(window.release)")
    await shop.click("button", "Log out")
    await shop.see("Password")
    await shop.evaluate("window.release()")
    await shop.until("sessionStorage.getItem('smartlinkd.job.0')")
    await shop.evaluate("new Promise((go) => setTimeout(go, 200))")
    shown = await shop.see("Password", but_not="Log out")
    assert "The session has ended" not in shown
    assert shop.refused == []  # nothing was asked for with the dead session


async def test_login_on_plain_http_outside_loopback_holds_over_reload(
    daemon: Daemon, plain_tab: Tab
) -> None:
    await plain_tab.open("crews")
    await plain_tab.log_in(daemon.password, daemon.totp.at(time.time() + 30))
    await plain_tab.see("asking")
    assert await plain_tab.evaluate("isSecureContext") is False
    await plain_tab.evaluate("location.reload()")
    await plain_tab.see("asking")
    assert await plain_tab.evaluate("document.cookie") == ""
    await plain_tab.click("button", "Log out")
    await plain_tab.see("Password")
    await plain_tab.evaluate("location.reload()")
    await plain_tab.see("Password")
