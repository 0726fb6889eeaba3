"""A POST of JSON to an address that a user has named: webhooks and notices.

A name is resolved once and the connection goes to an address that was checked, so a second lookup
cannot lead elsewhere (DNS rebinding). `Host`, the name that TLS asks for and the certificate are
those of the name. httpcore without httpx follows no redirect, keeps no cookies and reads no
variable of the environment. See docs/decisions/020-egress.md.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import httpcore
import httpx
import trio

from smartlinkd import __version__
from smartlinkd.net.addresses import Network
from smartlinkd.net.certificates import TrustStore, describe_unreadable
from smartlinkd.net.client import read_body
from smartlinkd.net.egress_rules import (
    Address,
    effective_address,
    is_allowed,
    is_allowlisted,
    is_same_link,
)
from smartlinkd.threads import NoThread

DEADLINE: Final = 30.0
"""Seconds from the lookup of the name to the answer's status. Standard Webhooks recommends no
longer one."""
CONNECT_DEADLINE: Final = 8.0
"""Seconds for one address: a dead one leaves time for the next within `DEADLINE`."""
MAX_ADDRESSES: Final = 3
"""Addresses of one name that are tried."""
MAX_ANSWER: Final = 16 * 1024
"""Bytes of an answer's body that are read."""
ANSWER_DEADLINE: Final = 2.0
"""Seconds for reading those."""
MAX_IDLE: Final = 8
"""Connections. An execution's events go one by one to the same place."""
IDLE_S: Final = 15.0
"""Less than most servers keep theirs, since a request on a closed one is a failed attempt."""

_BROKEN: Final = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.RemoteProtocolError)
_ANY_PORT: Final = 9
_DOCUMENTATION: Final = {4: ip_address("192.0.2.1"), 6: ip_address("2001:db8::1")}
"""Addresses that nobody has (RFC 5737, RFC 3849)."""
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
IsLocal = Callable[[Address], bool]


@dataclass(frozen=True)
class Answered:
    """The receiver's answer. `retry_after` is that header's value."""

    status: int
    retry_after: str | None = None


@dataclass(frozen=True)
class Unanswered:
    """No answer, and why. `is_final` if another attempt would end the same."""

    why: str
    is_final: bool = False


class CannotConnect(Exception):  # noqa: N818 - it names the state
    """There is no connection; the text says why, in words for the operator."""


class _Body:
    """A body in one piece. httpcore's own is a generator, which a cancelled request leaves to the
    garbage collector, and trio warns of that."""

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
    """A pool of checked connections. `open_sender` makes one."""

    def __init__(
        self, pool: httpcore.AsyncConnectionPool, trust: TrustStore, deadline_s: float
    ) -> None:
        self._pool = pool
        self._trust = trust
        self._deadline_s = deadline_s

    async def post(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> Answered | Unanswered:
        """Make one POST of JSON. The outcome's texts hold neither the URL nor a header.

        The status line decides: a 200 counts even if the body then breaks off.
        """
        why = f"no answer within {self._deadline_s:g} seconds"
        outcome: Answered | Unanswered = Unanswered(why)
        with trio.move_on_after(self._deadline_s):
            try:
                parts = httpx.URL(url)
                if parts.scheme == "https":
                    await self._trust.load()
                async with self._pool.stream(
                    "POST",
                    httpcore.URL(
                        scheme=parts.raw_scheme,
                        host=parts.raw_host,
                        port=parts.port,
                        target=parts.raw_path,
                    ),
                    headers=[
                        (b"Host", parts.netloc),
                        (b"User-Agent", f"smartlinkd/{__version__}".encode()),
                        (b"Accept", b"*/*"),
                        (b"Accept-Encoding", b"identity"),
                        (b"Content-Type", b"application/json"),
                        (b"Content-Length", str(len(body)).encode()),
                        *((name.encode(), value.encode()) for name, value in headers.items()),
                    ],
                    content=_Body(body),
                ) as response:
                    retry_after = httpx.Headers(response.headers).get("retry-after")
                    outcome = Answered(response.status, retry_after)
                    # So that the connection can be used again. Of a body that breaks off, or is
                    # long, the pool drops it.
                    with trio.move_on_after(ANSWER_DEADLINE), suppress(*_BROKEN):
                        await read_body(response.aiter_stream(), MAX_ANSWER)
            except (CannotConnect, NoThread) as obstacle:
                outcome = Unanswered(str(obstacle))
            except OSError as fault:  # of the certificates; httpcore has errors of its own
                outcome = Unanswered(describe_unreadable(fault))
            except (httpx.InvalidURL, httpcore.UnsupportedProtocol, httpcore.LocalProtocolError):
                # The address, or the credential, is nothing that HTTP can carry.
                outcome = Unanswered("it cannot be written as an HTTP request", is_final=True)
            except _BROKEN as error:
                outcome = Unanswered(_describe(error))
        return outcome


async def resolve_name(host: str) -> Sequence[Address]:
    """Return all addresses of a name, or the one that it is, in the system's order.

    Raises:
        CannotConnect: it has none, or no name server answers.
        NoThread: no thread can be started for the lookup.
    """
    try:
        found = await trio.socket.getaddrinfo(host, None, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise CannotConnect("its name could not be resolved") from None
    return [ip_address(each[0]) for *_, each in found]


def is_local(address: Address) -> bool:
    """Return True if the address is this machine's, or on an IPv6 link of it. Sends nothing.

    Raises:
        CannotConnect: the kernel has no descriptor or memory to ask it.
    """
    target = effective_address(address)
    # Where any address can be bound (ip_nonlocal_bind), a bind says nothing. To a second address of
    # an interface the kernel sends from the first one.
    if _can_bind(target) and not _can_bind(_DOCUMENTATION[target.version]):
        return True
    source = _own_address(target, lambda probe: probe.connect((str(target), _ANY_PORT)))
    return source is not None and (source == target or is_same_link(source, target))


def _can_bind(address: Address) -> bool:
    return _own_address(address, lambda probe: probe.bind((str(address), 0))) is not None


def _own_address(address: Address, prepare: Callable[[socket.socket], None]) -> Address | None:
    """Return a UDP socket's own address after `prepare`, or None if the kernel refused that."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            prepare(probe)
            return ip_address(str(probe.getsockname()[0]).partition("%")[0])
    except OSError as error:
        if error.errno in _EXHAUSTED:
            why = f"where it leads is not to be known now ({error.strerror})"
            raise CannotConnect(why) from None
        return None


class _CheckedNetwork(httpcore.AsyncNetworkBackend):
    """TCP connections to allowed addresses only."""

    def __init__(self, allow: Sequence[Network], resolve: Resolve, is_local: IsLocal) -> None:
        self._allow = tuple(allow)
        self._resolve = resolve
        self._is_local = is_local
        self._backend = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - every request has a trio deadline
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._resolve(host)
        allowed = [each for each in addresses if self._can_connect(each)]
        if not allowed:
            raise CannotConnect(_describe_refused(addresses))
        why = ""
        for address in allowed[:MAX_ADDRESSES]:
            try:
                return await self._backend.connect_tcp(
                    str(address), port, CONNECT_DEADLINE, local_address, socket_options
                )
            except httpcore.ConnectTimeout:
                why = f"{address} did not accept a connection within {CONNECT_DEADLINE:g} seconds"
            except httpcore.ConnectError:
                why = f"{address} cannot be connected to"
        raise CannotConnect(why)

    def _can_connect(self, address: Address) -> bool:
        if not is_allowed(address, self._allow):
            return False
        return is_allowlisted(address, self._allow) or not self._is_local(address)


def _describe_refused(addresses: Sequence[Address]) -> str:
    if not addresses:
        return "its name has no address"
    return (
        f"it leads to {addresses[0]}, which webhooks may not call (an operator who wants that "
        "names the network in webhooks.allow)"
    )


@asynccontextmanager
async def open_sender(
    allow: Sequence[Network],
    *,
    max_connections: int,
    resolve: Resolve = resolve_name,
    is_local: IsLocal = is_local,
    deadline_s: float = DEADLINE,
) -> AsyncIterator[Sender]:
    """Open a sender for the length of the block.

    Args:
        allow: networks that may be reached besides the public internet.
        resolve: returns the addresses of a name.
        is_local: returns True if an address is this machine's or on a link of it.
        deadline_s: for a whole call.
    """
    trust = TrustStore()
    pool = httpcore.AsyncConnectionPool(
        ssl_context=trust.context,
        max_connections=max_connections,
        max_keepalive_connections=MAX_IDLE,
        keepalive_expiry=IDLE_S,
        network_backend=_CheckedNetwork(allow, resolve, is_local),
    )
    async with pool:
        yield Sender(pool, trust, deadline_s)


def _describe(error: Exception) -> str:
    """Return why a connection failed: its certificate, or the kind of the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {cause.verify_message}"
        cause = cause.__context__
    # The type alone: messages may repeat what was sent.
    return f"the connection failed ({type(error).__name__})"
