"""Names are looked up on threads of their own, so that nobody else waits for a name server.

The problem: a look-up blocks a thread until the system's resolver gives up, and with name servers
that are silent that is half a minute. Who asked may have gone long before; the thread, and its
place among the forty that trio has for everybody, are not free before that. So an outage of DNS
would keep a one-time code from being written down as used, and nobody could log in.

The choice: trio's own hook for names, which everybody's connections go through (httpx's, httpcore's
and our own), with a limit of its own. Look-ups wait for each other, never for or before anything
else that is done on a thread. How long one waits is within the deadline of whoever asks.

Rejected: a resolver that can be cancelled (c-ares and the like). It would have to read what the
system's reads: its configuration, `/etc/hosts`, and whatever else `nsswitch.conf` names.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import trio

from smartlinkd.threads import on_thread

LOOK_UPS: Final = 64
"""Threads. A short host whose name servers are silent takes some 30: eight hops at a time, each
given up after 8 s, while glibc gives up after 30 (three servers, two tries of 5 s each;
resolv.conf(5)). As many are left for all others: 16 webhook calls at once, an API, other hosts."""


def look_up_apart() -> None:
    """From here to the end of this `trio.run`, look names up as described above."""
    trio.socket.set_custom_hostname_resolver(_Apart())


class _Apart(trio.abc.HostnameResolver):
    """Asked for what is a name; a numeric address trio knows to be one."""

    def __init__(self) -> None:
        self._threads = trio.CapacityLimiter(LOOK_UPS)

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
