"""Plain HTTP, for what needs no browser and must not carry the owner's session.

One client for all of it, owned by the caller and closed by them. It keeps no cookies (a short
link's answer sets some, and the next request would send them), follows no redirect (each hop is
judged first), says honestly who it is, and reads a body only up to a bound. Proxy variables of the
environment are not looked at: with them the same link could be resolved differently by hand and by
the service, and nobody would see why.

A body is read as UTF-8, whatever charset its header names: addresses and JSON are written in it.
Whoever answers would choose the codec otherwise, and some of Python's raise, are none for text, or
take seconds ("punycode", for a page of our bound).

Deadlines are trio's own, one around each call from the look-up of the name to the last byte:
httpx's timeouts start anew with every chunk, so that a drip of bytes would never end. That deadline
would also run while somebody waited for a place in the pool, behind whoever is slow. So nobody
does: connections are as many as there are calls, and those who call bound them (hops of short links
by host, links of the Open API by the submit, product data by its reads at once).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar

import httpx
import trio

from daemon import __version__
from daemon.trust import NoAuthorities, Trust

USER_AGENT = f"smartlinkd/{__version__}"
_LOCATION = "location"
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=30)


class NoAnswer(Exception):  # noqa: N818 - it names what came: nothing
    """No whole answer within the deadline, or the connection failed."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One response. `text` is its body, up to the bound."""

    status: int
    headers: httpx.Headers
    text: str


def open_client(transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """A client as described above; `transport` replaces the network in tests, TLS included."""
    trust = Trust()

    async def be_ready(request: httpx.Request) -> None:
        if request.url.scheme == "https":
            await trust.ready()

    return httpx.AsyncClient(
        transport=transport,
        verify=trust.context,
        headers={
            "User-Agent": USER_AGENT,
            "Accept": "*/*",
            # A compressed body has no bound that is worth the name.
            "Accept-Encoding": "identity",
        },
        cookies=_NoCookies(),
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # noqa: S113 - every call has a trio deadline
        limits=_LIMITS,
        event_hooks={
            "request": [be_ready] if transport is None else [],
            "response": [_put_location_aside],
        },
    )


class _NoCookies(CookieJar):
    """Takes none, and looks at none: a policy that refuses them all would be asked only after each
    was parsed, and the parser prints a traceback for an age that it cannot take.
    """

    def extract_cookies(self, *_: object) -> None:
        """See `CookieJar`."""


async def _put_location_aside(response: httpx.Response) -> None:
    """Before httpx sees it: it makes the next request in advance, followed or not, and an address
    that is none would come back to us as an error of whatever kind, in the place of the answer.
    """
    if _LOCATION in response.headers:
        response.extensions[_LOCATION] = response.headers.pop(_LOCATION)


async def call(
    client: httpx.AsyncClient,
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
    with trio.move_on_after(deadline) as scope:
        try:
            async with client.stream(method, url, headers=headers, content=content) as response:
                return await _read(response, max_body)
        except NoAuthorities as lack:
            raise NoAnswer(str(lack)) from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            # The type alone: httpx's messages can repeat the URL.
            raise NoAnswer(type(error).__name__) from None
        except UnicodeError:  # half a character in it, or a name that DNS cannot hold
            raise NoAnswer("its address cannot be written in a request") from None
    assert scope.cancelled_caught  # noqa: S101 - the body returns, raises, or was cancelled
    raise NoAnswer(f"no answer within {deadline:g} seconds")


async def _read(response: httpx.Response, max_body: int) -> Reply:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise NoAnswer(f"a body encoded as {encoding[:20]!r}, which was not asked for")
    body = bytearray()
    with trio.CancelScope() as enough:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > max_body:
                # Not `break`: that leaves generators below this one to the garbage collector, and
                # the connection with them. Cancelled, they end in order at their next read.
                enough.cancel()
    text = bytes(body[:max_body]).decode(errors="replace")
    headers = response.headers.copy()
    if _LOCATION in response.extensions:
        headers[_LOCATION] = response.extensions[_LOCATION]
    return Reply(response.status_code, headers, text)
