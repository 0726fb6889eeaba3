"""Plain HTTP, for what needs no browser and must not carry the owner's session.

One client for all of it. It keeps no cookies (a short link's answer sets some, and the next request
would send them), follows no redirect (each hop is judged first), says honestly who it is, and reads
a body only up to a bound. How httpx is brought to that is in `plain_client.py`, which is not read
before there is something to ask for.

Deadlines are trio's own, one around each call from the look-up of the name to the last byte:
httpx's timeouts start anew with every chunk, so that a drip of bytes would never end. That deadline
would also run while somebody waited for a place in the pool, behind whoever is slow. So nobody
does: connections are as many as there are calls, and those who call bound them (hops of short links
by host, links of the Open API by the submit, product data by its reads at once).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import trio

from smartlinkd.late_imports import needed

if TYPE_CHECKING:
    import httpx


class NoAnswer(Exception):  # noqa: N818 - it names what came: nothing
    """No whole answer within the deadline, or the connection failed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response. `text` is its body, up to the bound."""

    status: int
    headers: httpx.Headers
    text: str


class PlainHttp(AbstractAsyncContextManager["PlainHttp"]):
    """A client as described above, for the length of the block."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport` replaces the network in tests, TLS included."""
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def call(
        self,
        method: str,
        url: str,
        *,
        deadline: float,
        max_body: int,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Reply:
        """One request and its answer, in `deadline` seconds, `max_body` bytes of the body read.

        In the seconds is all: the look-up of the name, the connection, TLS, and the answer.
        Raises `NoAnswer`, whose text says what happened and holds neither URL nor headers.
        """
        with needed(NoAnswer):
            from smartlinkd.marketplace import plain_client  # noqa: PLC0415 - see smartlinkd/late_imports.py
        if self._client is None:
            self._client = plain_client.open_client(self._transport)
        with trio.move_on_after(deadline) as scope:
            return await plain_client.ask(
                self._client, method, url, max_body=max_body, headers=headers, content=content
            )
        assert scope.cancelled_caught  # noqa: S101 - the body returns, raises, or was cancelled
        raise NoAnswer(f"no answer within {deadline:g} seconds")
