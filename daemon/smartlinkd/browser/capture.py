"""Capture the answers to a page's own requests, from CDP's Network events.

A body can be read only after it has arrived, and only while the page shows the same document. So
each request is followed from its start, and ends in exactly one `CapturedResponse`, with its body
or with the reason why there is none. See docs/decisions/056-captured-responses.md.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import trio

from smartlinkd.browser.cdp import CdpSession, JsonObject
from smartlinkd.browser.errors import CallTimedOut, ProtocolError
from smartlinkd.nurseries import background
from smartlinkd.untrusted import first_line

ENDED_QUEUE = 256  # requests that have ended, and whose bodies are still to be read
RESPONSE_QUEUE = 16  # responses that nobody has taken yet
BODY_LIMIT = 4 * 1024 * 1024  # bytes; the bodies that matter have a few kilobytes
BODIES_LIMIT = 8 * 1024 * 1024  # bytes that a renderer keeps of all bodies of its page
NETWORK_BUFFERS = {"maxTotalBufferSize": BODIES_LIMIT, "maxResourceBufferSize": BODY_LIMIT}
"""The parameters of Network.enable, which a session needs before `capture`."""


@dataclass
class CapturedResponse:
    """The answer to a request of the page.

    Attributes:
        status: HTTP's, or 0 when there was no answer.
        lost: the reason why there is no body where one was due: the page went elsewhere, the
            transfer broke off, or Chromium did not give it (it is over `BODY_LIMIT`, say).
        leads_to: the URL that a redirect leads to.
    """

    status: int
    url: str = field(repr=False)
    mime_type: str = ""
    body: str = field(default="", repr=False)
    lost: str = ""
    leads_to: str = field(default="", repr=False)


@asynccontextmanager
async def capture(
    session: CdpSession, url_parts: Collection[str], method: str | None
) -> AsyncIterator[trio.MemoryReceiveChannel[CapturedResponse]]:
    """Capture the answers to those requests of a page that start while the block runs.

    Each captured request is reported once. A redirect is an answer without a body; the request that
    it leads to is captured too, whatever its URL.

    Args:
        url_parts: a request is captured if its URL contains one of these.
        method: the requests' method; None stands for any.

    Raises:
        PageGone: the page has ended, which cancels the block.
    """
    send, receive = trio.open_memory_channel[CapturedResponse](RESPONSE_QUEUE)
    mappers = _Requests(url_parts, method).mappers
    with session.events(mappers, size=ENDED_QUEUE) as ended, send, receive:
        async with background(partial(_report, session, ended, send)):
            yield receive


@dataclass
class _Request:
    """A captured request, and what is known of its answer so far."""

    id: str
    loader_id: str
    answer: CapturedResponse
    has_body: bool = False


class _Requests:
    """The captured requests under way. Each of `mappers` returns the requests that an event ends.

    The connection's reader calls them: most events are about requests that nobody captures, and
    should wake nobody.
    """

    def __init__(self, url_parts: Collection[str], method: str | None) -> None:
        self.mappers = {
            "Network.requestWillBeSent": self._handle_request,
            "Network.responseReceived": self._handle_response,
            "Network.loadingFinished": self._handle_finished,
            "Network.loadingFailed": self._handle_failed,
            "Page.frameNavigated": self._handle_navigation,
        }
        self._url_parts = url_parts
        self._method = method
        self._under_way: dict[str, _Request] = {}

    def _handle_request(self, params: JsonObject) -> Iterator[_Request]:
        id_, sent = params["requestId"], params["request"]
        redirect, url = params.get("redirectResponse"), sent["url"]
        redirected = None if redirect is None else self._under_way.pop(id_, None)
        if redirected is not None and redirect is not None:
            redirected.answer.status, redirected.answer.leads_to = redirect["status"], url
            yield redirected
        is_wanted = any(part in url for part in self._url_parts)
        if redirected is not None or (is_wanted and self._method in (None, sent["method"])):
            self._under_way[id_] = _Request(id_, params["loaderId"], CapturedResponse(0, url))

    def _handle_response(self, params: JsonObject) -> tuple[_Request, ...]:
        request = self._under_way.get(params["requestId"])
        if request is not None:
            request.answer.status = params["response"]["status"]
            request.answer.mime_type = params["response"]["mimeType"]
        return ()

    def _handle_finished(self, params: JsonObject) -> Iterator[_Request]:
        request = self._under_way.pop(params["requestId"], None)
        if request is not None:
            request.has_body = True
            yield request

    def _handle_failed(self, params: JsonObject) -> Iterator[_Request]:
        request = self._under_way.pop(params["requestId"], None)
        if request is not None:
            request.answer.lost = first_line(params["errorText"])
            yield request

    def _handle_navigation(self, params: JsonObject) -> Iterator[_Request]:
        # A document's requests end with it, and Chromium does not always say so.
        frame = params["frame"]
        if "parentId" in frame:
            return
        for request in list(self._under_way.values()):
            if request.loader_id != frame["loaderId"]:
                del self._under_way[request.id]
                request.answer.lost = "the page went elsewhere"
                yield request


async def _report(
    session: CdpSession,
    ended: trio.MemoryReceiveChannel[_Request],
    send: trio.MemorySendChannel[CapturedResponse],
) -> None:
    """Read the bodies and send the responses, until cancelled. Raises `PageGone`."""
    async for request in ended:
        if request.has_body:
            request.answer.body, request.answer.lost = await _read_body(session, request.id)
        await send.send(request.answer)
    raise await session.wait_gone()


async def _read_body(session: CdpSession, request_id: str) -> tuple[str, str]:
    """Return the body as text, and the reason if there is none."""
    try:
        answer = await session.call("Network.getResponseBody", {"requestId": request_id})
    except ProtocolError as refusal:
        return "", first_line(refusal.reason)
    except CallTimedOut as late:
        return "", str(late)
    body = answer["body"]
    if answer["base64Encoded"]:
        body = base64.b64decode(body).decode(errors="replace")
    return body, ""
