"""Connections to addresses that webhooks may call, and to no others.

The problem: checking a name and then connecting to it looks it up twice, and whoever owns the name
answers the second time with 127.0.0.1 (DNS rebinding).

The choice: a network for httpcore that looks up a name once, drops the addresses that may not be
called, and connects to one of the others. The layers above still know the name, so the `Host`
header, the name that TLS asks for and the certificate that must match it are as ever.

Rejected: refusing a name for one bad address among its good ones. It makes nothing safer, and
`localhost` would need both its addresses in `webhooks.allow`.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Final

import httpcore
import trio

from smartlinkd.networks import Network
from smartlinkd.posting.addresses import Address, is_named, may_call, on_one_link, reached

CONNECT_DEADLINE: Final = 8.0
"""Seconds for one address: a dead one leaves time for the next within a call's deadline."""
_ANY_PORT: Final = 9
_NOBODYS: Final = {4: ip_address("192.0.2.1"), 6: ip_address("2001:db8::1")}
"""Of documentation (RFC 5737, RFC 3849)."""
_SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MAX_ADDRESSES: Final = 3
"""Of one name, that are tried."""

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
IsNear = Callable[[Address], bool]


class NoWay(Exception):  # noqa: N818 - it names what there is
    """There is no connection; the text says why, in words for the operator."""


async def look_up(host: str) -> Sequence[Address]:
    """All addresses of a name, or the one that it is, in the system's order. Raises NoWay."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoWay("its name could not be resolved") from None
    return [ip_address(place[0]) for *_, place in found]


def is_near(address: Address) -> bool:
    """Whether it is this machine's, or on an IPv6 link of it. Sends nothing. Raises NoWay when that
    is not to be known at the moment."""
    there = reached(address)
    # Where anything can be bound to (ip_nonlocal_bind), that says nothing.
    if _can_bind(there) and not _can_bind(_NOBODYS[there.version]):
        return True
    source = _source_of(there)
    return source is not None and (source == there or on_one_link(source, there))


def _can_bind(address: Address) -> bool:
    return _asked(address, lambda asking: asking.bind((str(address), 0))) is not None


def _source_of(address: Address) -> Address | None:
    """The address of ours from which packets go there, or None where none do."""
    name = _asked(address, lambda asking: asking.connect((str(address), _ANY_PORT)))
    return None if name is None else ip_address(name.partition("%")[0])


def _asked(address: Address, ask: Callable[[socket.socket], None]) -> str | None:
    """The address of a socket of which that was asked, or None when the kernel refused it."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            ask(asking)
            return str(asking.getsockname()[0])
    except OSError as error:
        if error.errno in _SHORT:
            raise NoWay(f"where it leads is not to be known now ({error.strerror})") from None
        return None


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """TCP connections, as described above."""

    def __init__(self, allow: Sequence[Network], resolve: Resolve, is_near: IsNear) -> None:
        self._allow = tuple(allow)
        self._resolve = resolve
        self._is_near = is_near
        self._plain = httpcore.TrioBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - every call has a trio deadline
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Raises NoWay."""
        addresses = await self._resolve(host)
        allowed = [each for each in addresses if self._may_call(each)]
        if not allowed:
            raise NoWay(_nowhere(addresses))
        why = ""
        for address in allowed[:MAX_ADDRESSES]:
            try:
                return await self._plain.connect_tcp(
                    str(address), port, CONNECT_DEADLINE, local_address, socket_options
                )
            except httpcore.ConnectTimeout:
                why = f"{address} did not accept a connection within {CONNECT_DEADLINE:g} seconds"
            except httpcore.ConnectError:
                why = f"{address} cannot be connected to"
        raise NoWay(why)

    def _may_call(self, address: Address) -> bool:
        if not may_call(address, self._allow):
            return False
        return is_named(address, self._allow) or not self._is_near(address)


def _nowhere(addresses: Sequence[Address]) -> str:
    if not addresses:
        return "its name has no address"
    return (
        f"it leads to {addresses[0]}, which webhooks may not call (an operator who wants that "
        "names the network in webhooks.allow)"
    )
