"""httpx, brought to what `plain_http.py` promises. Only that file knows this one.

Proxy variables of the environment are not looked at: with them the same link could be resolved
differently by hand and by the service, and nobody would see why.

A body is read as UTF-8, whatever charset its header names: addresses and JSON are written in it.
Whoever answers would choose the codec otherwise, and some of Python's raise, are none for text, or
take seconds ("punycode", for a page of our bound).
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookiejar import CookieJar

import httpx
import trio

from smartlinkd import __version__
from smartlinkd.certificates import NoAuthorities, Trust
from smartlinkd.marketplace.plain_http import NoAnswer, Reply

USER_AGENT = f"smartlinkd/{__version__}"
_LOCATION = "location"
_LEADS_ON = (301, 302, 303, 307, 308)
# Kept for the next hop, which comes at once: servers commonly close an idle one after 5 s, and a
# call that meets that is lost.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=8, keepalive_expiry=4)
_DRAIN_WITHIN = 0.3  # seconds for a redirect's body, which may not end
_TO_TELL = 0.05  # of the caller's that are left then


def open_client(transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """A client that is to be closed. `transport` replaces the network, TLS included."""
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


async def ask(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    *,
    max_body: int,
    headers: Mapping[str, str] | None,
    content: bytes | None,
) -> Reply:
    """See `PlainHttp.call`. The caller has the deadline."""
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


async def _read(response: httpx.Response, max_body: int) -> Reply:
    headers = response.headers.copy()
    if _LOCATION in response.extensions:
        headers[_LOCATION] = response.extensions[_LOCATION]
        if response.status_code in _LEADS_ON:  # which is all there is to it
            await _drain(response, max_body)
            return Reply(response.status_code, headers, "")
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
    text = bytes(body[:max_body]).decode("utf-8-sig", errors="replace")  # some begin with a mark
    return Reply(response.status_code, headers, text)


async def _drain(response: httpx.Response, max_body: int) -> None:
    """Read a short body to its end, also an empty one, so that the connection can be used again:
    the next hop, and the next short link, often go to the same host."""
    size = 0
    until = min(trio.current_time() + _DRAIN_WITHIN, trio.current_effective_deadline() - _TO_TELL)
    with trio.move_on_at(until) as enough:
        try:
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > max_body:
                    enough.cancel()  # not `break`, see `_read`
        except (httpx.HTTPError, httpx.StreamError):
            return  # where it leads to is known, and the pool drops the connection
