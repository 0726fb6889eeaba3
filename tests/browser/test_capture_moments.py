"""Moments of a page's requests that a real browser does not show on demand, played by hand."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.browser.capture import CapturedResponse, capture
from smartlinkd.browser.cdp import CALL_DEADLINE, CdpConnection, CdpSession
from tests.browser.test_cdp import attached

if TYPE_CHECKING:
    from tests.browser.conftest import Peer

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


async def say(peer: Peer, method: str, **params: object) -> None:
    await peer.say({"sessionId": "S", "method": method, "params": params})
    await wait_all_tasks_blocked()


async def send(peer: Peer, id_: str = "1", loader: str = "L") -> None:
    """The page makes a request."""
    request = {"method": "POST", "url": API}
    await say(peer, "Network.requestWillBeSent", requestId=id_, loaderId=loader, request=request)


async def finish(peer: Peer, id_: str = "1") -> None:
    """It is answered, and the whole answer is there."""
    response = {"status": 200, "mimeType": "text/plain"}
    await say(peer, "Network.responseReceived", requestId=id_, response=response)
    await say(peer, "Network.loadingFinished", requestId=id_)


async def give(peer: Peer, body: str) -> None:
    """Answer the question about its body."""
    command = await peer.answer({"body": body, "base64Encoded": False})
    assert command["method"] == "Network.getResponseBody"


async def test_a_frame_that_goes_elsewhere_ends_no_request_of_the_page(
    session: CdpSession, peer: Any
) -> None:
    async with captured(session) as responses:
        await send(peer)
        frame = {"id": "F", "parentId": "T", "loaderId": "of the frame", "url": "about:blank"}
        await say(peer, "Page.frameNavigated", frame=frame)
        await finish(peer)
        await give(peer, "answer")
        assert (await responses.receive()).body == "answer"


async def test_a_page_that_goes_elsewhere_ends_the_requests_of_the_document_before(
    session: CdpSession, peer: Any
) -> None:
    async with captured(session) as responses:
        await send(peer, "1", loader="before")
        await send(peer, "2", loader="after")
        frame = {"id": "T", "loaderId": "after", "url": "https://a.example/"}
        await say(peer, "Page.frameNavigated", frame=frame)
        await finish(peer, "2")
        await give(peer, "answer")
        lost, answer = await responses.receive(), await responses.receive()
        assert (lost.lost, lost.body) == ("the page went elsewhere", "")
        assert (answer.lost, answer.body) == ("", "answer")


async def test_body_that_cannot_be_read_has_a_reason(
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


async def test_bytes_that_are_no_text_are_read_all_the_same(session: CdpSession, peer: Any) -> None:
    async with captured(session) as responses:
        await send(peer)
        await finish(peer)
        await peer.answer({"body": b64encode(b"a\xffb").decode(), "base64Encoded": True})
        assert (await responses.receive()).body == "a\ufffdb"
