"""Contract of the fake and the real Chromium: all that the daemon relies on.

A test on the fake alone proves nothing about behaviour that is not tested here.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import trio

from smartlinkd.browser.errors import (
    CallTimedOut,
    ContextLost,
    Disconnected,
    NavigationFailed,
    ProtocolError,
    SessionGone,
)
from smartlinkd.browser.page import BrowserContext, Page
from tests.fakes.tab import Tab, script

if TYPE_CHECKING:
    from tests.fakes.conftest import Subject

SOON = 10.0  # seconds
A_WHILE = 0.3
"""Seconds within which Chromium answers, if it answers at all."""
LOOP = "() => { for (;;); }"
NEVER = "() => new Promise(() => {})"
ADD = "(a, b) => a + b"
ALERT = "() => { alert('Sandbox'); return 7 }"
SELL = "/offer/custom_link"


# Scripts that the fake knows


@script(LOOP)
async def _loop(tab: Tab, _: list[Any]) -> None:
    tab.spin()
    await trio.sleep_forever()


@script(NEVER)
async def _never(_: Tab, __: list[Any]) -> None:
    await trio.sleep_forever()


@script(ADD)
async def _add(_: Tab, arguments: list[Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return arguments[0] + arguments[1]


@script(ALERT)
async def _alert(tab: Tab, __: list[Any]) -> int:
    await tab.alert()
    return 7


async def is_not_answered(page: Page) -> None:
    with pytest.raises(CallTimedOut):
        await page.evaluate(ADD, 1, 2, deadline=A_WHILE)


async def ends_with(page: Page, error: type[Exception]) -> None:
    """Run a script without end; it must fail with this error."""
    with trio.fail_after(SOON), pytest.raises(error):
        await page.evaluate(NEVER, deadline=math.inf)


async def answers(subject: Subject) -> None:
    assert (await subject.connection.browser.call("Browser.getVersion"))["product"]


# Calls


@pytest.mark.parametrize("of_page", [False, True], ids=["browser", "page"])
async def test_unknown_command_is_refused(subject: Subject, of_page: bool) -> None:
    session = (await subject.page()).session if of_page else subject.connection.browser
    with pytest.raises(ProtocolError, match=r"'No\.such' wasn't found") as refused:
        await session.call("No.such")
    assert refused.value.code == -32601


async def test_closed_session_is_refused(subject: Subject) -> None:
    page = await subject.page()
    await page.close()
    page.session.gone = None  # as if the client did not know the session's end
    with pytest.raises(SessionGone, match="was closed"):
        await page.session.call("Page.enable")


# Ends


async def test_killed_browser_closes_its_socket(subject: Subject) -> None:
    page = await subject.page()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends_with, page, Disconnected)
        await page.evaluate(ADD, 1, 2)  # by now the other script runs
        subject.send(signal.SIGKILL)
    with trio.fail_after(SOON):
        assert (await subject.process.wait()).signal == 9
        await subject.connection.wait_closed()


async def test_stopped_browser_keeps_its_socket_and_answers_when_continued(
    subject: Subject,
) -> None:
    page = await subject.page()
    subject.send(signal.SIGSTOP)
    with pytest.raises(CallTimedOut):
        await subject.connection.browser.call("Browser.getVersion", deadline=A_WHILE)
    await is_not_answered(page)
    assert subject.connection.browser.gone is None
    subject.send(signal.SIGCONT)
    await answers(subject)
    assert await page.evaluate(ADD, 1, 2) == 3


async def test_crashed_tab_is_reported_and_answers_nothing(subject: Subject) -> None:
    page = await subject.page()
    await subject.crash(page)
    with trio.fail_after(SOON):
        assert "crashed" in str(await page.session.wait_gone())
    gone, page.session.gone = page.session.gone, None  # ask the browser, not only our client
    await is_not_answered(page)
    page.session.gone = gone
    await answers(subject)
    with trio.fail_after(SOON):
        await page.close()


async def test_tab_in_endless_loop_blocks_no_other(subject: Subject) -> None:
    page, other = await subject.page(), await subject.page()
    with pytest.raises(CallTimedOut):
        await page.evaluate(LOOP, deadline=A_WHILE)
    await is_not_answered(page)
    await answers(subject)
    assert await other.evaluate(ADD, 1, 2) == 3
    with trio.fail_after(SOON):
        await page.close()
    with pytest.raises(SessionGone):
        await page.evaluate(ADD, 1, 2)


async def test_disposing_of_context_closes_its_tabs(subject: Subject) -> None:
    context = await BrowserContext.create(subject.connection, ())
    page = await context.new_page()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends_with, page, SessionGone)
        await page.evaluate(ADD, 1, 2)
        await context.dispose()
    with pytest.raises(ProtocolError, match="Failed to find context"):
        await subject.connection.browser.call(
            "Target.disposeBrowserContext", {"browserContextId": context.id}
        )


# Pages


async def test_page_is_loaded_when_its_dom_is(subject: Subject) -> None:
    page = await subject.page("4711")
    url = subject.origins.portal + SELL
    frames, seen = list[dict[str, Any]](), list[dict[str, Any]]()
    page.session.on("Page.frameNavigated", lambda params: frames.append(params["frame"]))
    page.session.on("Page.lifecycleEvent", seen.append)
    assert await page.goto(url) == url
    (frame,) = frames
    steps = [params["name"] for params in seen if params["loaderId"] == frame["loaderId"]]
    assert frame["url"] == url
    assert steps[0] == "init"
    assert "DOMContentLoaded" in steps


async def test_page_without_cookies_redirects_to_login(subject: Subject) -> None:
    where = await (await subject.page()).goto(subject.origins.portal + SELL)
    assert where.startswith(f"{subject.origins.shop}/buyer/login?")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (lambda origins: f"{origins.portal}{SELL}", "net::ERR_CONNECTION_RESET"),
        (lambda _: "nonsense", "Cannot navigate to invalid URL"),
    ],
    ids=["reset", "nonsense"],
)
async def test_page_that_cannot_be_loaded_raises(
    subject: Subject, url: Callable[[Any], str], reason: str
) -> None:
    subject.portal.arm("page_reset", account="4711")
    page = await subject.page("4711")
    with pytest.raises(NavigationFailed, match=reason):
        await page.goto(url(subject.origins))


async def test_script_ends_with_its_page(subject: Subject) -> None:
    page = await subject.page("4711")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends_with, page, ContextLost)
        await page.evaluate(ADD, 1, 2)
        await page.goto(subject.origins.portal + SELL)


async def test_alert_blocks_script_until_dismissed(subject: Subject) -> None:
    page = await _page_with_open_dialogs(subject)
    opened = trio.Event()
    page.session.on("Page.javascriptDialogOpening", lambda _: opened.set())
    with trio.fail_after(SOON):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_gives_seven, page)
            await opened.wait()
            await is_not_answered(page)
            page.session.post("Page.handleJavaScriptDialog", {"accept": False})


async def _page_with_open_dialogs(subject: Subject) -> Page:
    """Return a page that was not set up, so that nothing dismisses its dialogs."""
    browser = subject.connection.browser
    context = await BrowserContext.create(subject.connection, ())
    where = {"url": "about:blank", "browserContextId": context.id, "newWindow": True}
    target_id = (await browser.call("Target.createTarget", where))["targetId"]
    session = await subject.connection.attach(target_id)
    await session.call("Page.enable")
    return Page(browser, session, target_id)


async def _gives_seven(page: Page) -> None:
    assert await page.evaluate(ALERT, deadline=SOON) == 7
