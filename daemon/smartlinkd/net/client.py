"""The HTTP client for the marketplace and estimate services, without the owner's cookie.

It is httpx's transport alone, which keeps no cookies and follows no redirect (the caller judges
each hop). `deadline` covers a request from the lookup of the name to the last byte: httpx's
timeouts start anew with every chunk. See docs/decisions/022-marketplace-client.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass

import httpx
import trio

from smartlinkd import __version__
from smartlinkd.net.certificates import TrustStore, describe_unreadable

USER_AGENT = f"smartlinkd/{__version__}"
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "*/*",
    # A compressed body has no bound that is worth the name.
    "Accept-Encoding": "identity",
}
_DRAIN_S = 0.3
"""Seconds for the body of a redirect, which nobody wants."""
_MAX_IDLE = 8
# For the next hop, which comes at once: servers commonly close an idle connection after 5 s, and a
# request that meets that is lost.
_IDLE_S = 4


class NoAnswer(Exception):  # noqa: N818 - it names what came: nothing
    """No whole answer within the deadline, or the connection failed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response. `text` is its body, up to the bound; "" for a redirect."""

    status: int
    headers: httpx.Headers
    text: str


class HttpClient(AbstractAsyncContextManager["HttpClient"]):
    """A client, for the length of the block."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport` replaces the network in tests, TLS included."""
        self._has_network = transport is None
        self._trust = TrustStore()
        self._transport = transport or httpx.AsyncHTTPTransport(
            verify=self._trust.context,
            trust_env=False,
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=_MAX_IDLE, keepalive_expiry=_IDLE_S
            ),
        )

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        deadline: float,
        max_body: int,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> Reply:
        """Make one request and read its answer.

        Args:
            deadline: seconds for the lookup of the name, the connection, TLS and the answer.
            max_body: bytes of the body that are read.

        Raises:
            NoAnswer: there is none. Its text says why, and holds neither URL nor headers.
            NoThread: no thread can be started for the name or the certificates.
        """
        with trio.move_on_after(deadline) as scope:
            try:
                if self._has_network and httpx.URL(url).scheme == "https":
                    await self._trust.load()
                request = httpx.Request(
                    method, url, headers={**_HEADERS, **(headers or {})}, content=content
                )
                response = await self._transport.handle_async_request(request)
                try:
                    return await _read(response, max_body)
                finally:
                    await response.aclose()
            except OSError as fault:  # of the certificates; httpx has errors of its own
                raise NoAnswer(describe_unreadable(fault)) from None
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                # The type alone: httpx's messages can repeat the URL.
                raise NoAnswer(type(error).__name__) from None
            except UnicodeError:  # half a character in it, or a name that DNS cannot hold
                raise NoAnswer("its address cannot be written in a request") from None
        assert scope.cancelled_caught  # noqa: S101 - the body returns, raises, or was cancelled
        raise NoAnswer(f"no answer within {deadline:g} seconds")


async def _read(response: httpx.Response, max_body: int) -> Reply:
    headers = response.headers
    if response.has_redirect_location:
        # Where it leads is known. Its body is read so that the next hop can use the connection.
        with trio.move_on_after(_DRAIN_S), suppress(httpx.HTTPError, httpx.StreamError):
            await read_body(response.aiter_bytes(), max_body)
        return Reply(response.status_code, headers, "")
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise NoAnswer(f"a body encoded as {encoding[:20]!r}, which was not asked for")
    body = await read_body(response.aiter_bytes(), max_body)
    # UTF-8 whatever charset the header names: the sender would choose the codec, and some of
    # Python's raise, are not for text, or take seconds. "-sig": some bodies begin with a mark.
    text = bytes(body[:max_body]).decode("utf-8-sig", errors="replace")
    return Reply(response.status_code, headers, text)


async def read_body(chunks: AsyncIterable[bytes], max_body: int) -> bytearray:
    """Return the body, or its beginning if it has more than `max_body` bytes."""
    body = bytearray()
    with trio.CancelScope() as enough:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_body:
                # Not `break`: that leaves generators below this one to the garbage collector, and
                # the connection with them. Cancelled, they end in order at their next read.
                enough.cancel()
    return body
