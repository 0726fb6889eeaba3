"""The adapter's scripts in a real Chromium, on the sandbox's pages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from smartlinkd.browser.cdp import CdpConnection
from smartlinkd.browser.page import NAVIGATION_DEADLINE, BrowserContext, Page
from smartlinkd.marketplace import portal
from smartlinkd.marketplace.cookies import browser_cookies
from smartlinkd.marketplace.errors import HumanCheck
from smartlinkd.marketplace.links import Product
from smartlinkd.marketplace.markets import Market, market
from smartlinkd.sandbox.server import open_sandbox
from smartlinkd.sandbox.session import cookie_header
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.vault.cookie import parse_cookie

pytestmark = pytest.mark.chromium

LIPSTICK = Product(88201679, 23456789012)
CAMERA = Product(40011223, 17788990011)


@asynccontextmanager
async def sandbox_page(
    connection: CdpConnection,
) -> AsyncIterator[tuple[Page, Market, SandboxState]]:
    """A tab at a sandbox, in the session of an account."""
    async with open_sandbox(hold=30) as sandbox:
        place = market(
            "vn",
            portal_url=sandbox.origins.portal,
            shop_url=sandbox.origins.shop,
            short_urls=[sandbox.origins.short],
        )
        cookies = browser_cookies(place, parse_cookie(cookie_header()))
        context = await BrowserContext.create(connection, cookies)
        yield await context.new_page(), place, sandbox


WHOLE = b"HTTP/1.1 200 X\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
HEAD = b"HTTP/1.1 200 X\r\nContent-Type: text/html\r\nContent-Length: 9999\r\n\r\n"

Handler = Callable[[trio.SocketStream, bytes], Awaitable[None]]


@asynccontextmanager
async def served_by(handler: Handler) -> AsyncIterator[Market]:
    """The market of a server of which `handler` answers each request."""

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await handler(stream, await stream.receive_some())

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, answer, [listener])
        here = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        yield market("vn", portal_url=here, shop_url=here, short_urls=[here])
        nursery.cancel_scope.cancel()


def redirect(to: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize(
    "answer",
    [None, b"", HEAD + b"<title>check</title><script src=/verify/captcha?slow></script>"],
    ids=["silent", "broken off", "half there"],
)
async def test_check_whose_page_does_not_come_raises_human_check(
    page: Page, answer: bytes | None
) -> None:
    async def handler(stream: trio.SocketStream, asked: bytes) -> None:
        leads_to = {b"/offer/custom_link": "/gate", b"/gate": "/verify/captcha"}
        if (there := leads_to.get(asked.split(b" ")[1])) is not None:
            await stream.send_all(redirect(there))
        elif answer is None or b"?slow " in asked:
            await trio.sleep_forever()
        elif answer:
            await stream.send_all(answer)
            await stream.receive_some()

    async with served_by(handler) as place:
        with trio.fail_after(NAVIGATION_DEADLINE / 2), pytest.raises(HumanCheck):
            await portal.open_links_page(page, place)


@pytest.mark.parametrize("status", [302, 303, 307, 308])
async def test_call_redirected_to_check_raises_human_check(page: Page, status: int) -> None:
    """After a 307 or a 308 the check is asked for by POST."""

    async def handler(stream: trio.SocketStream, asked: bytes) -> None:
        call = asked.startswith(b"POST /api")
        await stream.send_all(redirect("/verify/captcha", status) if call else WHOLE)

    async with served_by(handler) as place:
        await page.goto(f"{place.portal_url}/offer/custom_link")
        with pytest.raises(HumanCheck):
            await portal.submit_fetch(page, place, [LIPSTICK], [])


async def test_tab_led_to_check_by_script_is_not_navigated_away(
    connection: CdpConnection,
) -> None:
    async with sandbox_page(connection) as (page, place, sandbox):
        await portal.open_links_page(page, place)
        before, counted = page.document_count, dict(sandbox.counters)
        leave = "(to) => { setTimeout(() => location.replace(to)); }"
        await page.evaluate(leave, f"{sandbox.origins.portal}/verify/captcha")
        with trio.fail_after(NAVIGATION_DEADLINE):
            while page.document_count == before:  # noqa: ASYNC110 - no event of ours
                await trio.sleep(0.01)
        with pytest.raises(HumanCheck):
            await portal.open_links_page(page, place)
        assert sandbox.counters["page custom_link"] == counted["page custom_link"]


async def test_dialog_with_check_is_not_closed(connection: CdpConnection) -> None:
    async with sandbox_page(connection) as (page, place, sandbox):
        await portal.open_links_page(page, place)
        await portal.submit_form(page, place, [LIPSTICK], [])
        check = f"{sandbox.origins.shop}/verify/captcha"
        await page.evaluate(
            """(check) => new Promise((shown) => {
                const dialog = document.createElement("div");
                dialog.setAttribute("role", "dialog");
                dialog.innerHTML = '<button class="close">x</button><iframe></iframe>';
                dialog.querySelector("button").onclick = () => dialog.remove();
                document.body.append(dialog);
                dialog.querySelector("iframe").onload = shown;
                dialog.querySelector("iframe").src = check;
            })""",
            check,
        )
        with pytest.raises(HumanCheck):
            await portal.submit_form(page, place, [CAMERA], [])
        assert await page.evaluate("() => frames.length") == 1
        assert len(sandbox.submits) == 1
