"""Capture: what a page's own requests are answered, read over CDP's Network events.

The problem: the answer that is wanted belongs to the page. Its body can be had only after it has
arrived, and only for as long as the page shows the same document; and a request may end in more
ways than by an answer. Whoever waits for one must hear of each of these ends.

The choice: each request of interest is followed from its start, and each one ends in exactly one
`Response`, with its body or with the reason why there is none. What is only noted is noted by the
connection's reader, as it comes: most events are about requests that nobody waits for.
Rejected: the Fetch domain, which holds up every request of the page until we say go on.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from smartlinkd.browser.cdp import Events, JsonObject, Session
from smartlinkd.browser.errors import CallTimedOut, ProtocolError, without_query
from smartlinkd.nurseries import background
from smartlinkd.untrusted import first_line

logger = logging.getLogger(__name__)

# Requests of interest that may be under way, that may have ended, and answers that may wait to be
# taken.
EXCHANGES = 64
ENDED_BEHIND = 256
RESPONSES_WAITING = 16
# A body is text of a few kilobytes. What is larger is not what anybody waits for.
BODY_LIMIT = 4 * 1024 * 1024
# What a renderer may keep of bodies, all requests of its page together.
BODIES_KEPT = 32 * 1024 * 1024


@dataclass(frozen=True)
class Response:
    """The answer to a request of the page.

    `status` is 0 when there was none. `lost` says why there is no body, where there was one to be
    had: the page went elsewhere, the transfer broke off, it was larger than BODY_LIMIT. `leads_to`
    is the URL that a redirect leads to.
    """

    status: int
    url: str = field(repr=False)
    mime_type: str
    body: str = field(repr=False)
    lost: str = ""
    leads_to: str = field(default="", repr=False)


@asynccontextmanager
async def capture(
    session: Session, url_parts: Collection[str], method: str | None
) -> AsyncIterator[trio.MemoryReceiveChannel[Response]]:
    """The answers to a page's requests of `method` (None: of any) with one of `url_parts` in their
    URL.

    Of those requests that start in the block. Every one of them is reported, with its body as text
    or with the reason why there is none (see `Response`). A redirect is an answer, without a body;
    where it leads is a request of its own, and followed whatever its URL. The block is cancelled,
    and PageGone leaves it, when the page ends; so nobody waits for an answer that cannot come.
    """
    await session.enable(
        "Network", {"maxTotalBufferSize": BODIES_KEPT, "maxResourceBufferSize": BODY_LIMIT}
    )
    send, receive = trio.open_memory_channel[Response](RESPONSES_WAITING)
    sieves = _Exchanges(url_parts, method).sieves
    with session.sifted(sieves, behind=ENDED_BEHIND) as ended, send, receive:
        async with background(partial(_report, session, ended, send)):
            yield receive


@dataclass
class _Exchange:
    """A request of interest, and what is known of its answer, in the terms of a `Response`."""

    id: str
    url: str
    loader_id: str
    status: int = 0
    mime_type: str = ""
    has_body: bool = False
    lost: str = ""
    leads_to: str = ""


class _Exchanges:
    """The requests of interest that are under way. Each of `sieves` gives those that an event of
    the protocol has ended."""

    def __init__(self, url_parts: Collection[str], method: str | None) -> None:
        self.sieves = {
            "Network.requestWillBeSent": self._requested,
            "Network.responseReceived": self._responded,
            "Network.loadingFinished": self._finished,
            "Network.loadingFailed": self._failed,
            "Page.frameNavigated": self._navigated,
        }
        self._url_parts = url_parts
        self._method = method
        self._under_way: dict[str, _Exchange] = {}

    def _requested(self, told: JsonObject) -> Iterator[_Exchange]:
        id_, request = told["requestId"], told["request"]
        redirect, url = told.get("redirectResponse"), request["url"]
        before = None if redirect is None else self._under_way.pop(id_, None)
        if before is not None and redirect is not None:
            before.status, before.leads_to = redirect["status"], url
            yield before
        of_interest = any(part in url for part in self._url_parts)
        if before is not None or (of_interest and self._method in (None, request["method"])):
            if len(self._under_way) >= EXCHANGES:
                logger.warning("a request to %s is not followed", without_query(url))
                return
            self._under_way[id_] = _Exchange(id_, url, told["loaderId"])

    def _responded(self, told: JsonObject) -> tuple[_Exchange, ...]:
        exchange = self._under_way.get(told["requestId"])
        if exchange is not None:
            exchange.status = told["response"]["status"]
            exchange.mime_type = told["response"]["mimeType"]
        return ()

    def _finished(self, told: JsonObject) -> Iterator[_Exchange]:
        exchange = self._under_way.pop(told["requestId"], None)
        if exchange is not None:
            exchange.has_body = True
            yield exchange

    def _failed(self, told: JsonObject) -> Iterator[_Exchange]:
        exchange = self._under_way.pop(told["requestId"], None)
        if exchange is not None:
            exchange.lost = first_line(told["errorText"])
            yield exchange

    def _navigated(self, told: JsonObject) -> Iterator[_Exchange]:
        """What a document had under way is over with it, and Chromium does not always say so."""
        frame = told["frame"]
        if "parentId" in frame:
            return
        for exchange in list(self._under_way.values()):
            if exchange.loader_id != frame["loaderId"]:
                del self._under_way[exchange.id]
                exchange.lost = "the page went elsewhere"
                yield exchange


async def _report(
    session: Session, ended: Events[_Exchange], send: trio.MemorySendChannel[Response]
) -> None:
    """Until the page ends, which is raised, or cancelled."""
    async for exchange in ended:
        body = ""
        if exchange.has_body:
            body, exchange.lost = await _body(session, exchange.id)
        await send.send(
            Response(
                exchange.status,
                exchange.url,
                exchange.mime_type,
                body,
                exchange.lost,
                exchange.leads_to,
            )
        )
        if ended.lost:
            logger.warning("%d answers were lost: too many at once", ended.lost)
            ended.lost = 0


async def _body(session: Session, request_id: str) -> tuple[str, str]:
    """A body as text, and if it is none the reason why."""
    try:
        answer = await session.call("Network.getResponseBody", {"requestId": request_id})
    except ProtocolError as refusal:
        return "", first_line(refusal.reason)
    except CallTimedOut as late:
        return "", str(late)
    body = answer["body"]
    if answer["base64Encoded"]:
        body = base64.b64decode(body).decode(errors="replace")
    if len(body) > BODY_LIMIT:
        return "", f"it is larger than {BODY_LIMIT} characters"
    return body, ""
