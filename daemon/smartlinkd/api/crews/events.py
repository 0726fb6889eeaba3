"""What happens in an execution, as server-sent events (HTML standard, section 9.2).

The problem: this answer has no end of its own, so each way in which it can end has to be seen to.
The execution ends; the client leaves, or stops reading; the server stops; a part behind it is
restarted. In all of them the follower's place in the executor has to be given back at once. And a
refusal can only be told before the answer begins.

The choice: a response body that is an object and no generator. The server enters it, asks it for
one piece after another, and leaves it, whatever ended it; a generator that was cancelled between
two pieces would stay open until somebody collects it. The place in the executor is taken once
before the answer begins, for the refusal, and again while it is written: the two are far apart in
the framework, and nothing between them can be relied on to give a place back.
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
from smartlinkd.crews.subscriptions import EventStream
from smartlinkd.errors import Refused, WrongCredential
from smartlinkd.store.model import ExecutionEvent

logger = logging.getLogger(__name__)

MEDIA: Final = "text/event-stream"
KEEP_ALIVE: Final = 15.0
"""Seconds of silence after which a comment is sent: proxies close what says nothing for a minute,
and a client that is gone without a word is noticed by what cannot be delivered."""

GLANCE: Final = 1.0
"""Seconds for the part that knows the tokens; one that is being restarted takes longer."""

_COMMENT: Final = b": nothing new\n\n"
_BEGIN: Final = b": the events of one execution follow\n\n"
_BREAKS_FOR_SOME: Final = {
    sign.encode(): b"\\u%04x" % ord(sign) for sign in ("\x85", "\u2028", "\u2029")
}
"""Ordinary characters to the standard and to JSON, line breaks to clients that read lines as
Python does."""

Admit = Callable[[], Awaitable[object]]
Follow = Callable[[], AbstractAsyncContextManager[EventStream]]


def stream(follow: Follow, admit: Admit, stopping: trio.Event, *, head: bool) -> Response:
    """The answer that tells all events of `follow()`, until there are no more, or `stopping`, or
    `admit()` refuses: who holds a token that was rotated is told nothing more.

    Asked for its `head` alone, it has no events to wait for.
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
        self._following: EventStream | None = None
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
        if self._news is None and not self._stopping.is_set() and await self._is_let_in():
            return _COMMENT
        if not self._news:
            raise StopAsyncIteration
        self._is_within_event = not self._news[-1].is_last_part
        piece = b"".join(map(encode, self._news))
        self._news = None  # while the client does not read, only the piece is in memory
        return piece

    async def _read(self, following: EventStream) -> None:
        """Have `_news` hold the next events, [] when there will be none, or None for silence.

        The deadline is the nursery's own: an outer one could throw events away that were read. And
        what was read is kept in `_ahead` until it may be told: to be admitted may take longer, when
        the part that knows the tokens is being restarted.
        """
        self._news = None
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + KEEP_ALIVE
            nursery.start_soon(self._read_next, following, nursery.cancel_scope)
            nursery.start_soon(self._cancel_at_stop, nursery.cancel_scope)

    async def _read_part(self, following: EventStream) -> None:
        """Have `_news` hold the next part of the current event; [] when there will be none.

        The part is on disk already, so the stream does not wait for news: it needs no comment and
        no look at `stopping`. The token was checked for the whole event.
        """
        try:
            self._news = await following.next()
        except Refused as refusal:
            logger.info("an event stream ended within an event: %s", refusal)
            self._news = []

    async def _read_next(self, following: EventStream, scope: trio.CancelScope) -> None:
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

    async def _is_let_in(self) -> bool:
        """Whether the token is still valid; asked also while there are no events, which may be for
        days. If that cannot be known at the moment, the stream goes on."""
        try:
            with trio.move_on_after(GLANCE):
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
