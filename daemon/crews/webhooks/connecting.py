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

import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Final

import httpcore
import trio

from daemon.config.values import Network
from daemon.crews.webhooks.targets import Address, is_named, is_near, may_call

CONNECT_DEADLINE: Final = 8.0
"""Seconds for one address: a dead one leaves time for the next within a call's deadline."""
_ANY_PORT: Final = 9
MAX_ADDRESSES: Final = 3
"""Of one name, that are tried."""

Resolve = Callable[[str], Awaitable[Sequence[Address]]]
SourceOf = Callable[[Address], Address | None]


class NoWay(Exception):  # noqa: N818 - it names what there is
    """There is no connection; the text says why, in words for the operator."""


async def look_up(host: str) -> Sequence[Address]:
    """All addresses of a name, or the one that it is, in the system's order. Raises NoWay."""
    try:
        found = await trio.socket.getaddrinfo(host, None, type=trio.socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoWay("its name could not be resolved") from None
    return [ip_address(place[0]) for *_, place in found]


def source_of(address: Address) -> Address | None:
    """The address of ours from which packets go there, or None where none do. Sends nothing."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((str(address), _ANY_PORT))
            return ip_address(asking.getsockname()[0].partition("%")[0])
    except OSError:
        return None


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """TCP connections, as described above."""

    def __init__(self, allow: Sequence[Network], resolve: Resolve, source_of: SourceOf) -> None:
        self._allow = tuple(allow)
        self._resolve = resolve
        self._source_of = source_of
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
        source = self._source_of(address)
        return source is None or not is_near(address, source) or is_named(address, self._allow)


def _nowhere(addresses: Sequence[Address]) -> str:
    if not addresses:
        return "its name has no address"
    return (
        f"it leads to {addresses[0]}, which webhooks may not call (an operator who wants that "
        "names the network in webhooks.allow)"
    )
