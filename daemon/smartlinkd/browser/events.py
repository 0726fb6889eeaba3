"""Subscriptions to what the browser tells on its own account.

The problem: events come in floods, and a subscriber may be slow. Whoever reads the connection must
not wait for it, and memory is not without end. So a subscription holds a bounded number of events;
more are lost, and the loss can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import trio

from smartlinkd.browser.errors import PageGone

JsonObject: TypeAlias = dict[str, Any]


T = TypeVar("T")


class Event(NamedTuple):
    """One event of the protocol."""

    method: str
    params: JsonObject


class Events(Generic[T]):
    """A subscription: iterate over it, or take the `next()`. `lost` counts what did not fit.

    `Session.events()` and `Session.sifted()` make one, and call `put` and `end`.
    """

    def __init__(self, behind: int, gone_error: Callable[[], PageGone]) -> None:
        self.lost = 0
        self._gone_error = gone_error
        self._send, self._receive = trio.open_memory_channel[T](behind)

    async def next(self) -> T:
        """Wait for the next event. Raises the session's PageGone when none will come."""
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise self._gone_error() from None

    def __aiter__(self) -> Events[T]:
        return self

    async def __anext__(self) -> T:
        return await self.next()

    def put(self, event: T) -> None:
        """Add an event, or count it as lost."""
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self.lost += 1

    def end(self) -> None:
        """No event will come any more. Those that are there can still be taken."""
        self._send.close()
