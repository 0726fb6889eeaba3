"""Listening sockets, for the host and port of a setting.

Made before anything else starts, so that a port that is taken ends the start at once, with the
setting's name in the message, and clients that come early wait in the kernel's queue.
"""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address

from smartlinkd.errors import Invalid

BACKLOG = 256  # connections the kernel keeps for us while all of ours are busy

_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_REMEDIES = {
    errno.EADDRINUSE: "another program listens there; stop it or choose another port",
    errno.EACCES: "ports below 1024 need a privilege this process does not have; choose a higher "
    "one, or have the service manager open the socket",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose one of its own",
    errno.EAFNOSUPPORT: "this machine does not do this kind of address (IPv6 off?)",
}


# Python has no names for these (ip(7), and Linux's in6.h).
_FREEBIND: dict[int, tuple[int, int]] = {
    socket.AF_INET: (socket.IPPROTO_IP, 15),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 78),
}


def bind(
    host: str, port: int, *, setting: str = "server.bind", early: bool = False
) -> list[socket.socket]:
    """Listening TCP sockets at a host name or an IP address; none is inheritable.

    A host name gives one socket for each of its addresses that this machine has; "::" takes IPv4 as
    well. Port 0 lets the kernel choose. When it is `early`, an IP address counts that this machine
    does not have yet. Blocks while a host name is looked up. Raises `Invalid`, naming the
    `setting`, for a host that there is not and for what cannot be listened on.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise Invalid(
            f"{setting}: there is no host {host!r}; name one of this machine, as in "
            '"127.0.0.1:8787"'
        ) from None
    may_be_absent = early and _is_one(host)
    listening: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, _, _, _, where in found:
            try:
                listening.append(_listen(family, where, may_be_absent=may_be_absent))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise
                absent = error
        if absent is not None and not listening:
            raise absent
    except OSError as error:
        for opened in listening:
            opened.close()
        remedy = _REMEDIES.get(error.errno or 0, error.strerror)
        raise Invalid(f"{setting}: cannot listen on {host}, port {port}: {remedy}") from error
    return listening


def _is_one(host: str) -> bool:
    """Return True if `host` is an IP address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_absent(address: str) -> bool:
    """Return True if this machine does not have this IP address, or not yet."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno in _NOT_HERE
    return False


def _listen(
    family: int, where: tuple[str | int, ...] | tuple[int, bytes], *, may_be_absent: bool
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if may_be_absent:
            made.setsockopt(*_FREEBIND[family], 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Stated, because the system's default for it can be changed.
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, where[0] != "::")
        made.bind(where)
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made
