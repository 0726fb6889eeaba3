"""Listening sockets, from the text of `server.bind`.

Made before anything else starts, so that a port that is taken ends the start at once, with the
setting's name in the message, and clients that come early wait in the kernel's queue.
"""

from __future__ import annotations

import errno
import re
import socket

from daemon.errors import Invalid

BACKLOG = 256  # connections the kernel keeps for us while all of ours are busy

_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[^\[\]:\s]+)):(?P<port>[0-9]{1,5})")
_EXAMPLE = 'write HOST:PORT, as in "127.0.0.1:8787", "0.0.0.0:8787" or "[::]:8787"'
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
_REMEDIES = {
    errno.EADDRINUSE: "another program listens there; stop it or choose another port",
    errno.EACCES: "ports below 1024 need a privilege this process does not have; choose a higher "
    "one, or have the service manager open the socket",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose one of its own",
    errno.EAFNOSUPPORT: "this machine does not do this kind of address (IPv6 off?)",
}


def bind(address: str) -> list[socket.socket]:
    """Listening TCP sockets for "host:port", "1.2.3.4:port" or "[::]:port"; none is inheritable.

    A host name gives one socket for each of its addresses that this machine has; "[::]" takes IPv4
    as well. Port 0 lets the kernel choose. Blocks while a host name is looked up. Raises `Invalid`,
    naming `server.bind`, for what is not an address and for what cannot be listened on.
    """
    host, port = _parse(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise Invalid(f"server.bind: there is no host {host!r}; {_EXAMPLE}") from None
    listening: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, _, _, _, where in found:
            try:
                listening.append(_listen(family, where))
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
        raise Invalid(f"server.bind: cannot listen on {address}: {remedy}") from error
    return listening


def _parse(address: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise Invalid(f"server.bind: {address!r} is not an address to listen on; {_EXAMPLE}")
    port = int(match["port"])
    if port > 65535:
        raise Invalid(f"server.bind: there is no port {port}, 65535 is the last; {_EXAMPLE}")
    return match["ipv6"] or match["host"], port


def _listen(family: int, where: tuple[str | int, ...] | tuple[int, bytes]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
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
