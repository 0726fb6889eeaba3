"""The events of an execution as server-sent events (HTML standard, section 9.2).

The answer ends with the execution, the client, the server, or the token. Its body is an object and
no generator: see docs/decisions/079-event-streams.md.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Final

import trio
from pydantic_core import to_json
from quart import Response
from quart.wrappers.response import ResponseBody

from smartlinkd.crews.subscriptions import ExecutionEventStream
from smartlinkd.errors import Refused
from smartlinkd.nurseries import background, cancel_at
from smartlinkd.store.model import ExecutionEvent
from smartlinkd.supervision.calls import actor_deadline
from smartlinkd.wire import timestamp

logger = logging.getLogger(__name__)

MEDIA: Final = "text/event-stream"
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies close a connection that is silent for a
minute, and a client that has left without a word is noticed by what cannot be delivered."""

_COMMENT: Final = b": nothing new\n\n"
_BEGIN: Final = b": the events of one execution follow\n\n"
_BREAKS_FOR_SOME: Final = {
    sign.encode(): b"\\u%04x" % ord(sign) for sign in ("\x85", "\u2028", "\u2029")
}
"""Ordinary characters to the standard and to JSON, line breaks to clients that read lines as
Python does."""

Admit = Callable[[], Awaitable[object]]
Follow = Callable[[], AbstractAsyncContextManager[ExecutionEventStream]]


def stream(follow: Follow, admit: Admit, stopping: trio.Event) -> Response:
    """Return the answer with all events of `follow()`.

    It ends when there are no more, at `stopping`, or when `admit()` refuses: the holder of a token
    that was rotated gets nothing more.
    """
    response = Response(_Stream(follow, admit, stopping), content_type=MEDIA)
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
        self._is_within_event = False

    async def __aenter__(self) -> _Stream:
        try:
            self._following = await self._held.enter_async_context(self._follow())
        except Refused as refusal:
            logger.info("an event stream ended before its first event: %s", refusal)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._held.__aexit__(*error)

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun:
            self._begun = True
            return _BEGIN
        if self._following is None:
            raise StopAsyncIteration
        try:
            events = await self._next(self._following)
        except Refused as refusal:
            # The client comes again with the last id that it has seen, and misses nothing.
            logger.info("an event stream ended early: %s", refusal)
            raise StopAsyncIteration from None
        if events is None:
            return _COMMENT
        if not events:
            raise StopAsyncIteration
        self._is_within_event = not events[-1].is_last_part
        return b"".join(map(encode, events))

    async def _next(self, following: ExecutionEventStream) -> list[ExecutionEvent] | None:
        """Return the next events, [] when there will be none, or None after a silence.

        Raises:
            Refused: the events or the token cannot be read, or the token is no longer valid.
        """
        if self._is_within_event:
            # Its next part is on disk already. The token was checked for the whole event.
            return await following.next()
        events: list[ExecutionEvent] | None = None
        with trio.move_on_after(KEEP_ALIVE) as silence:
            async with background(partial(cancel_at, self._stopping, silence)):
                events = await following.next()
        if self._stopping.is_set():
            return []
        if events != []:
            with actor_deadline():
                await self._admit()  # in a silence as well, which may last for days
        return events


def encode(event: ExecutionEvent) -> bytes:
    """Return an event, or a part of it, as it is sent.

    JSON has no line breaks of its own, so its data is one line.
    """
    text = event.json
    if event.offset == 0:
        head = to_json({"type": event.type, "timestamp": timestamp(event.timestamp)})
        # An event without data has an empty object, as webhooks do.
        text = b'id: %d\ndata: %s,"data":%s' % (event.number, head[:-1], text or b"{}")
    for sign, escaped in _BREAKS_FOR_SOME.items():
        text = text.replace(sign, escaped)
    return text + b"}\n\n" if event.is_last_part else text
