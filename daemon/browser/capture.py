"""Capture: what a page's own requests are answered, read over CDP's Network events.

The problem: the answer that is wanted belongs to the page. Its body can be had only after it has
arrived, and only for as long as the page shows the same document; and a request may end in more
ways than by an answer. Whoever waits for one must hear of each of these ends.

The choice: each request of interest is followed from its start, and each one ends in exactly one
`Response`, with its body or with the reason why there is none. Rejected: the Fetch domain, which
holds up every request of the page until we say go on.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from daemon.browser.cdp import Session
from daemon.browser.errors import CallTimedOut, ProtocolError, shown, without_query
from daemon.browser.events import Events, JsonObject
from daemon.processes.background import background

logger = logging.getLogger(__name__)

# A page sends a hundred requests while it loads, with four events each.
NETWORK_BEHIND = 2048
# Requests of interest that may be under way, and answers that may wait to be taken.
EXCHANGES = 64
RESPONSES_WAITING = 16
# A body is text of a few kilobytes. What is larger is not what anybody waits for.
BODY_LIMIT = 4 * 1024 * 1024
# What a renderer may keep of bodies, all requests of its page together.
BODIES_KEPT = 32 * 1024 * 1024


@dataclass(frozen=True)
class Response:
    """The answer to a request of the page.

    `status` is 0 when there was none. `lost` says why there is no body, where there was one to be
    had: the page went elsewhere, the transfer broke off, it was larger than BODY_LIMIT.
    """

    status: int
    url: str = field(repr=False)
    mime_type: str
    body: str = field(repr=False)
    lost: str = ""


@asynccontextmanager
async def capture(
    session: Session, url_part: str, method: str
) -> AsyncIterator[trio.MemoryReceiveChannel[Response]]:
    """The answers to a page's requests of `method` whose URL contains `url_part`.

    Of those requests that start in the block. Every one of them is reported, with its body as text
    or with the reason why there is none (see `Response`). A redirect is an answer, without a body;
    where it leads is a request of its own. The block is cancelled, and PageGone leaves it, when
    the page ends; so nobody waits for an answer that cannot come.
    """
    await session.enable(
        "Network", {"maxTotalBufferSize": BODIES_KEPT, "maxResourceBufferSize": BODY_LIMIT}
    )
    send, receive = trio.open_memory_channel[Response](RESPONSES_WAITING)
    follower = _Capture(session, send, url_part, method)
    with session.events(*_Capture.EVENTS, behind=NETWORK_BEHIND) as events, send, receive:
        async with background(partial(follower.run, events)):
            yield receive


class _Exchange:
    """A request of interest, and what is known of its answer."""

    def __init__(self, url: str, loader_id: str) -> None:
        self.url = url
        self.loader_id = loader_id
        self.status = 0
        self.mime_type = ""


class _Capture:
    """Follows requests through CDP's Network events and sends on their answers."""

    EVENTS = (
        "Network.requestWillBeSent",
        "Network.responseReceived",
        "Network.loadingFinished",
        "Network.loadingFailed",
        "Page.frameNavigated",
    )

    def __init__(
        self,
        session: Session,
        send: trio.MemorySendChannel[Response],
        url_part: str,
        method: str,
    ) -> None:
        self._session = session
        self._send = send
        self._url_part = url_part
        self._method = method
        self._exchanges: dict[str, _Exchange] = {}

    async def run(self, events: Events) -> None:
        """Until the page ends, which is raised, or cancelled."""
        steps = {
            "Network.requestWillBeSent": self._requested,
            "Network.responseReceived": self._responded,
            "Network.loadingFinished": self._finished,
            "Network.loadingFailed": self._failed,
            "Page.frameNavigated": self._navigated,
        }
        async for event in events:
            await steps[event.method](event.params)
            if events.lost:
                logger.warning("%d network events were lost: too many at once", events.lost)
                events.lost = 0

    async def _requested(self, told: JsonObject) -> None:
        request_id, request = told["requestId"], told["request"]
        redirect = told.get("redirectResponse")
        if redirect is not None:
            before = self._exchanges.pop(request_id, None)
            if before is not None:
                before.status = redirect["status"]
                await self._report(before)
        if request["method"] == self._method and self._url_part in request["url"]:
            if len(self._exchanges) >= EXCHANGES:
                logger.warning("a request to %s is not followed", without_query(request["url"]))
                return
            self._exchanges[request_id] = _Exchange(request["url"], told["loaderId"])

    async def _responded(self, told: JsonObject) -> None:
        exchange = self._exchanges.get(told["requestId"])
        if exchange is not None:
            exchange.status = told["response"]["status"]
            exchange.mime_type = told["response"]["mimeType"]

    async def _finished(self, told: JsonObject) -> None:
        exchange = self._exchanges.pop(told["requestId"], None)
        if exchange is None:
            return
        try:
            answer = await self._session.call(
                "Network.getResponseBody", {"requestId": told["requestId"]}
            )
        except ProtocolError as refusal:
            await self._report(exchange, lost=shown(refusal.reason))
            return
        except CallTimedOut as late:
            await self._report(exchange, lost=str(late))
            return
        body = answer["body"]
        if answer["base64Encoded"]:
            body = base64.b64decode(body).decode(errors="replace")
        if len(body) > BODY_LIMIT:
            await self._report(exchange, lost=f"it is larger than {BODY_LIMIT} characters")
        else:
            await self._report(exchange, body=body)

    async def _failed(self, told: JsonObject) -> None:
        exchange = self._exchanges.pop(told["requestId"], None)
        if exchange is not None:
            await self._report(exchange, lost=shown(told["errorText"]))

    async def _navigated(self, told: JsonObject) -> None:
        """What a document had under way is over with it, and Chromium does not always say so."""
        frame = told["frame"]
        if "parentId" in frame:
            return
        for request_id, exchange in list(self._exchanges.items()):
            if exchange.loader_id != frame["loaderId"]:
                del self._exchanges[request_id]
                await self._report(exchange, lost="the page went elsewhere")

    async def _report(self, exchange: _Exchange, *, body: str = "", lost: str = "") -> None:
        await self._send.send(
            Response(exchange.status, exchange.url, exchange.mime_type, body, lost)
        )
