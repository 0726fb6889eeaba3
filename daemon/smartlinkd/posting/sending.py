"""One POST over HTTP: sent once, in bounded time, and told apart from silence.

httpcore by itself, below httpx: it follows no redirect, keeps no cookies, unpacks nothing and reads
no variable of the environment, and it lets us choose the network (`connecting.py`). Connections are
kept for a while, since an execution's events go one by one to the same place.

The answer is its status. Its body is read a little, for the connection's sake, and not looked at:
a receiver that has said 200 and then drips, or breaks off, has taken the call.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypedDict

import httpcore
import httpx
import trio

from smartlinkd import __version__
from smartlinkd.certificates import NoAuthorities, Trust
from smartlinkd.networks import Network
from smartlinkd.posting.connecting import (
    CheckedNetwork,
    IsNear,
    NoWay,
    Resolve,
    is_near,
    look_up,
)
from smartlinkd.posting.outcomes import Answered, Silence
from smartlinkd.threads import NoThread

DEADLINE: Final = 30.0
"""Seconds from the look-up of the name to the answer's status; what the specification of signed
webhooks asks of patience at most."""
MAX_ANSWER: Final = 16 * 1024
"""Bytes of an answer's body that are read."""
ANSWER_DEADLINE: Final = 2.0
"""Seconds for those."""
KEPT: Final = 8
"""Idle connections."""
KEPT_FOR: Final = 15.0
"""Seconds; less than most servers keep theirs, for a call on a closed one is a failed attempt."""


BROKEN: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError)


class _Request(TypedDict):
    method: str
    url: httpcore.URL
    headers: list[tuple[bytes, bytes]]
    content: _Body


class _Body:
    """A body in one piece. httpcore's own is a generator, which a call that is cancelled leaves to
    the garbage collector, and trio warns of that."""

    def __init__(self, body: bytes) -> None:
        self._left = self._body = body

    def __aiter__(self) -> _Body:
        return _Body(self._body)

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        piece, self._left = self._left, b""
        return piece


class Sender:
    """Made by `open_sender`."""

    def __init__(self, pool: httpcore.AsyncConnectionPool, trust: Trust) -> None:
        self._pool = pool
        self._trust = trust

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answered | Silence:
        """One POST of JSON. Its texts hold neither the URL nor a header."""
        outcome: Answered | Silence = Silence(f"no answer within {DEADLINE:g} seconds")
        with trio.move_on_after(DEADLINE):
            try:
                request = _request(url, headers, body)
                if request["url"].scheme == b"https":
                    await self._trust.ready()
                async with self._pool.stream(**request) as response:
                    outcome = Answered(response.status, _header(response, b"retry-after"))
                    await _drain(response)
            except (NoWay, NoAuthorities, NoThread) as obstacle:
                outcome = Silence(str(obstacle))
            except (httpx.InvalidURL, httpcore.UnsupportedProtocol, httpcore.LocalProtocolError):
                # The address, or the credential, is nothing that HTTP can carry.
                outcome = Silence("it cannot be written as an HTTP request", final=True)
            except BROKEN as error:
                outcome = Silence(_why(error))
        return outcome


@asynccontextmanager
async def open_sender(
    allow: Sequence[Network],
    *,
    at_once: int,
    resolve: Resolve | None = None,
    is_near: IsNear = is_near,
) -> AsyncIterator[Sender]:
    """A sender for the length of the block, with at most `at_once` connections.

    `resolve` looks up names in the system's place, and `is_near` what is ours.
    """
    trust = Trust()
    pool = httpcore.AsyncConnectionPool(
        ssl_context=trust.context,
        max_connections=at_once,
        max_keepalive_connections=KEPT,
        keepalive_expiry=KEPT_FOR,
        network_backend=CheckedNetwork(allow, resolve or look_up, is_near),
    )
    async with pool:
        yield Sender(pool, trust)


def _request(url: str, headers: Mapping[str, str], body: bytes) -> _Request:
    parts = httpx.URL(url)
    return {
        "method": "POST",
        "url": httpcore.URL(
            scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path
        ),
        "headers": [
            (b"Host", parts.netloc),
            (b"User-Agent", f"smartlinkd/{__version__}".encode()),
            (b"Accept", b"*/*"),
            (b"Accept-Encoding", b"identity"),
            (b"Content-Type", b"application/json"),
            (b"Content-Length", str(len(body)).encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ],
        "content": _Body(body),
    }


async def _drain(response: httpcore.Response) -> None:
    """Read a short body to its end, so that the connection can be used again."""
    size = 0
    # The scope is left by being cancelled: `break` would leave generators below to the garbage
    # collector, and the connection with them.
    with trio.move_on_after(ANSWER_DEADLINE) as enough:
        try:
            async for chunk in response.aiter_stream():
                size += len(chunk)
                if size > MAX_ANSWER:
                    enough.cancel()
        except BROKEN:
            return  # the status counts, and the pool drops the connection


def _header(response: httpcore.Response, name: bytes) -> str | None:
    values = (value for given, value in response.headers if given.lower() == name)
    found = next(values, None)
    return None if found is None else found.decode("latin-1")


def _why(error: Exception) -> str:
    """What went wrong with a connection: the certificate, when that is it, else the kind."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__context__
    # The type alone: messages may repeat what was sent.
    return f"the connection failed ({type(error).__name__})"
