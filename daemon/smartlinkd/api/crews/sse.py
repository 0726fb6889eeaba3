"""The events of an execution as server-sent events (HTML standard, section 9.2).

The answer ends with the execution, the client, the server, or the token. Its body is an object and
no generator: see docs/decisions/079-event-streams.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Final

import trio
from pydantic_core import to_json
from quart import Response
from quart.wrappers.response import DataBody, ResponseBody

from smartlinkd.api.crews.schemas import EventHead
from smartlinkd.crews.subscriptions import ExecutionEventStream
from smartlinkd.errors import Refused, WrongCredential
from smartlinkd.store.model import ExecutionEvent

logger = logging.getLogger(__name__)

MEDIA: Final = "text/event-stream"
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies close a connection that is silent for a
minute, and a client that has left without a word is noticed by what cannot be delivered."""

CHECK_SECONDS: Final = 1.0
"""For checking the token in the silence; an actor that is being restarted takes longer."""

_COMMENT: Final = b": nothing new\n\n"
_BEGIN: Final = b": the events of one execution follow\n\n"
_BREAKS_FOR_SOME: Final = {
    sign.encode(): b"\\u%04x" % ord(sign) for sign in ("\x85", "\u2028", "\u2029")
}
"""Ordinary characters to the standard and to JSON, line breaks to clients that read lines as
Python does."""

Admit = Callable[[], Awaitable[object]]
Follow = Callable[[], AbstractAsyncContextManager[ExecutionEventStream]]


def stream(follow: Follow, admit: Admit, stopping: trio.Event, *, head: bool) -> Response:
    """Return the answer with all events of `follow()`.

    It ends when there are no more, at `stopping`, or when `admit()` refuses: the holder of a token
    that was rotated gets nothing more. With `head` it has no events.
    """
    body = DataBody(b"") if head else _Stream(follow, admit, stopping)
    response = Response(body, content_type=MEDIA)
    response.timeout = None
    # nginx would keep the events until it has a buffer full of them.
    response.headers["X-Accel-Buffering"] = "no"
    return response


class _Stream(ResponseBody):
    """Entered, read and left by the one task that sends the answer."""

    def __init__(self, follow: Follow, admit: Admit, stopping: trio.Event) -> None:
        self._follow = follow
        self._admit = admit
        self._stopping = stopping
        self._held = AsyncExitStack()
        self._following: ExecutionEventStream | None = None
        self._begun = False
        self._ahead: list[ExecutionEvent] | None = None
        self._news: list[ExecutionEvent] | None = None
        self._is_within_event = False

    async def __aenter__(self) -> _Stream:
        try:
            self._following = await self._held.enter_async_context(self._follow())
        except Refused as refusal:
            logger.info("an event stream ended before its first event: %s", refusal)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self._held.__aexit__(exc_type, exc_value, tb)

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun:
            self._begun = True
            return _BEGIN
        if self._following is None:
            raise StopAsyncIteration
        if self._is_within_event:
            await self._read_part(self._following)
        elif self._stopping.is_set():
            raise StopAsyncIteration
        else:
            await self._read(self._following)
        if self._news is None and not self._stopping.is_set() and await self._is_admitted():
            return _COMMENT
        if not self._news:
            raise StopAsyncIteration
        self._is_within_event = not self._news[-1].is_last_part
        piece = b"".join(map(encode, self._news))
        self._news = None  # while the client does not read, only the piece is in memory
        return piece

    async def _read(self, following: ExecutionEventStream) -> None:
        """Set `_news` to the next events, to [] when there will be none, or to None for silence.

        The deadline is the nursery's own: an outer one could throw away events that were read. They
        stay in `_ahead` until the token is checked, which takes longer during a restart.
        """
        self._news = None
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + KEEP_ALIVE
            nursery.start_soon(self._read_next, following, nursery.cancel_scope)
            nursery.start_soon(self._cancel_at_stop, nursery.cancel_scope)

    async def _read_part(self, following: ExecutionEventStream) -> None:
        """Set `_news` to the next part of the current event, or to [] when there will be none.

        It is on disk already, so there is no wait. The token was checked for the whole event.
        """
        try:
            self._news = await following.next()
        except Refused as refusal:
            logger.info("an event stream ended within an event: %s", refusal)
            self._news = []

    async def _read_next(self, following: ExecutionEventStream, scope: trio.CancelScope) -> None:
        try:
            if self._ahead is None:
                self._ahead = await following.next()
            await self._admit()
            self._news, self._ahead = self._ahead, None
        except Refused as refusal:
            # The client comes again with the last id that it has seen, and misses nothing.
            logger.info("an event stream ended early: %s", refusal)
            self._news = []
        scope.cancel()

    async def _is_admitted(self) -> bool:
        """Return False if the token is no longer valid.

        It is checked also while there are no events, which may be for days. When it cannot be
        checked at the moment, the stream goes on.
        """
        try:
            with trio.move_on_after(CHECK_SECONDS):
                await self._admit()
        except WrongCredential as refusal:
            logger.info("an event stream ended in its silence: %s", refusal)
            return False
        except Refused as refusal:
            logger.debug("an event stream goes on unasked: %s", refusal)
        return True

    async def _cancel_at_stop(self, scope: trio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()


def encode(event: ExecutionEvent) -> bytes:
    """Return an event, or a part of it, as it is sent.

    JSON has no line breaks of its own, so its data is one line.
    """
    text = event.json
    if event.offset == 0:
        head = to_json(EventHead(type=event.type, timestamp=event.timestamp))
        # An event without data has an empty object, as webhooks do.
        text = b'id: %d\ndata: %s,"data":%s' % (event.number, head[:-1], text or b"{}")
    for sign, escaped in _BREAKS_FOR_SOME.items():
        text = text.replace(sign, escaped)
    return text + b"}\n\n" if event.is_last_part else text
