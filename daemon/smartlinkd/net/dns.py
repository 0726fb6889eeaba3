"""Name resolution on threads of its own.

A lookup blocks its thread for half a minute when the name servers are silent. On the threads that
the daemon shares, an outage of DNS would hold up everything else that blocks, a login included.
See docs/decisions/021-name-lookups.md.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import trio

from smartlinkd.threads import on_thread

MAX_LOOKUPS: Final = 64
"""Threads. A short host whose name servers are silent takes some 30: eight hops at a time, each
given up after 8 s, while glibc gives up after 30 (three servers, two tries of 5 s each;
resolv.conf(5)). As many are left for all others: 16 webhook calls at once, an API, other hosts."""


def install_resolver() -> None:
    """Resolve names on threads of their own, until the end of this `trio.run`."""
    trio.socket.set_custom_hostname_resolver(_ThreadedResolver())


class _ThreadedResolver(trio.abc.HostnameResolver):
    """The resolver for trio's sockets, httpx and httpcore. Numeric addresses do not come here."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(MAX_LOOKUPS)

    async def getaddrinfo(  # noqa: PLR0917 - trio's own parameters
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        """See `socket.getaddrinfo`."""
        return await on_thread(
            socket.getaddrinfo,
            host,
            port,
            family,
            type,
            proto,
            flags,
            abandon_on_cancel=True,
            limiter=self._threads,
        )

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int
    ) -> tuple[str, str]:
        """See `socket.getnameinfo`."""
        return await on_thread(
            socket.getnameinfo, sockaddr, flags, abandon_on_cancel=True, limiter=self._threads
        )
