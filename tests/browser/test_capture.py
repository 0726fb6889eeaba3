"""Captured responses: in a real Chromium, and by hand where one does not show them on demand."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.browser.capture import BODY_LIMIT, CapturedResponse, capture
from smartlinkd.browser.cdp import CALL_DEADLINE, CdpConnection, CdpSession
from smartlinkd.browser.errors import SessionGone
from smartlinkd.browser.page import Page
from tests.browser.test_cdp import attached

if TYPE_CHECKING:
    from tests.browser.conftest import Peer

POST = "async (url) => { const r = await fetch(url, {method: 'POST'}); return r.status }"
TRY_POST = "async (url) => { try { await (await fetch(url, {method: 'POST'})).text() } catch {} }"


async def first_captured(page: Page, do: Callable[[], Awaitable[object]]) -> CapturedResponse:
    """Return the answer to the page's first POST to something with /api/ in it."""
    async with page.responses("/api/") as responses:
        await do()
        with trio.fail_after(5):
            return await responses.receive()


@pytest.mark.chromium
async def test_answer_to_a_pages_request_is_captured(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    json = {"Content-Type": "application/json"}
    wanted = site.put("/api/x", '{"a": "ế"}', status=403, headers=json)
    unwanted = site.put("/other", "x")

    async def requests() -> None:
        await page.evaluate("async (url) => { await fetch(url) }", wanted)  # a GET
        await page.evaluate(POST, unwanted)
        await page.evaluate(POST, f"{wanted}?q=1")

    response = await first_captured(page, requests)
    assert response == CapturedResponse(403, f"{wanted}?q=1", "application/json", '{"a": "ế"}')
    assert "q=1" not in repr(response)


@pytest.mark.chromium
async def test_redirect_is_captured_before_its_target_answers(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    login = site.put("/login", wait=trio.Event())
    wanted = site.put("/api/x", status=302, headers={"Location": login})
    ask = "(url) => { fetch(url, {method: 'POST'}) }"
    response = await first_captured(page, lambda: page.evaluate(ask, wanted))
    assert response == CapturedResponse(302, wanted, "", "", leads_to=login)


@pytest.mark.chromium
async def test_request_without_an_answer_is_lost_with_a_reason(
    page: Page, site: Any, closed_port: int
) -> None:
    await page.goto(site.put("/here"))
    wanted = f"http://127.0.0.1:{closed_port}/api/x"
    response = await first_captured(page, lambda: page.evaluate(TRY_POST, wanted))
    assert response == CapturedResponse(0, wanted, "", "", lost="net::ERR_CONNECTION_REFUSED")


@pytest.mark.chromium
async def test_answer_that_breaks_off_is_lost_with_a_reason(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    wanted = site.put("/api/x", "short", headers={"Content-Length": "100"})
    response = await first_captured(page, lambda: page.evaluate(TRY_POST, wanted))
    assert (response.status, response.body) == (200, "")
    assert response.lost == "net::ERR_CONTENT_LENGTH_MISMATCH"


@pytest.mark.chromium
async def test_body_over_the_limit_is_lost(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    wanted = site.put("/api/x", "x" * (BODY_LIMIT + 1))
    response = await first_captured(page, lambda: page.evaluate(POST, wanted))
    assert (response.status, response.body) == (200, "")
    assert response.lost


@pytest.mark.chromium
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["same site", "another site"])
async def test_request_of_a_page_that_leaves_is_lost(host: str, page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    wanted = site.put("/api/x", "x", wait=trio.Event())
    site.put("/there")

    async def leave() -> None:
        await page.evaluate("(url) => { fetch(url, {method: 'POST'}) }", wanted)
        await page.goto(site.url("/there", host=host))

    response = await first_captured(page, leave)
    assert (response.status, response.url, response.body) == (0, wanted, "")
    assert response.lost


@pytest.mark.chromium
async def test_capture_of_a_closed_page_raises(page: Page) -> None:
    with trio.fail_after(5), pytest.raises(SessionGone):
        await first_captured(page, page.close)
    with trio.fail_after(5), pytest.raises(SessionGone):
        await first_captured(page, trio.lowlevel.checkpoint)


Responses = trio.MemoryReceiveChannel[CapturedResponse]

API = "https://a.example/api"


@pytest.fixture
async def session(conversation: CdpConnection, peer: Any, nursery: trio.Nursery) -> CdpSession:
    """The page's."""
    return await attached(conversation, peer, nursery)


@asynccontextmanager
async def captured(session: CdpSession) -> AsyncIterator[Responses]:
    async with capture(session, ["/api"], "POST") as responses:
        yield responses


async def send(peer: Peer, id_: str = "1", loader: str = "L") -> None:
    """The page makes a request."""
    request = {"method": "POST", "url": API}
    await peer.report("Network.requestWillBeSent", requestId=id_, loaderId=loader, request=request)


async def finish(peer: Peer, id_: str = "1") -> None:
    """Tell of the whole answer to a request."""
    response = {"status": 200, "mimeType": "text/plain"}
    await peer.report("Network.responseReceived", requestId=id_, response=response)
    await peer.report("Network.loadingFinished", requestId=id_)


async def give(peer: Peer, body: str) -> None:
    """Answer the question about its body."""
    command = await peer.answer({"body": body, "base64Encoded": False})
    assert command["method"] == "Network.getResponseBody"


async def test_frame_that_navigates_ends_no_request_of_the_page(
    session: CdpSession, peer: Any
) -> None:
    async with captured(session) as responses:
        await send(peer)
        frame = {"id": "F", "parentId": "T", "loaderId": "of the frame", "url": "about:blank"}
        await peer.report("Page.frameNavigated", frame=frame)
        await finish(peer)
        await give(peer, "answer")
        assert (await responses.receive()).body == "answer"


async def test_page_that_navigates_ends_requests_of_the_document_before(
    session: CdpSession, peer: Any
) -> None:
    async with captured(session) as responses:
        await send(peer, "1", loader="before")
        await send(peer, "2", loader="after")
        frame = {"id": "T", "loaderId": "after", "url": "https://a.example/"}
        await peer.report("Page.frameNavigated", frame=frame)
        await finish(peer, "2")
        await give(peer, "answer")
        lost, answer = await responses.receive(), await responses.receive()
        assert (lost.lost, lost.body) == ("the page went elsewhere", "")
        assert (answer.lost, answer.body) == ("", "answer")


async def test_body_that_cannot_be_read_is_lost_with_a_reason(
    session: CdpSession, peer: Any, autojump_clock: MockClock
) -> None:
    async with captured(session) as responses:
        await send(peer)
        await finish(peer)
        await peer.take()
        with trio.fail_after(2 * CALL_DEADLINE):
            answer = await responses.receive()
        assert (answer.status, answer.body) == (200, "")
        assert "Network.getResponseBody" in answer.lost


async def test_body_of_bytes_that_are_no_text_is_read(session: CdpSession, peer: Any) -> None:
    async with captured(session) as responses:
        await send(peer)
        await finish(peer)
        await peer.answer({"body": b64encode(b"a\xffb").decode(), "base64Encoded": True})
        assert (await responses.receive()).body == "a\ufffdb"
