"""Listening sockets that the service manager opened, and keeps open (socket activation).

Whoever connects while no daemon is there waits in the socket's own queue for the next one: across a
restart nobody is refused. Which address is which is told by name, `FileDescriptorName=` in a socket
unit: `http` is the main one, `crew-NAME` that of a crew with a `bind`. Any other is nobody's, also
the unit's own name, which a socket has without that line: it may have been meant for a crew, and at
the main address everything can be asked for.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Bind
from smartlinkd.service_manager.given import Descriptor

MAIN: Final = "http"
NAMES: Final = "FileDescriptorName=http, or crew-NAME for the crew of that name"
_OF_CREW: Final = "crew-"
_MPTCP: Final = 262  # linux/in.h; the socket module has no name for it yet
_REMEDY: Final = "its unit needs ListenStream=ADDRESS:PORT, and Accept=no"


@dataclass(frozen=True)
class Sockets:
    """Descriptors by what they are for. An address may have several; `crews` are by crew."""

    main: tuple[Descriptor, ...] = ()
    crews: Mapping[str, tuple[Descriptor, ...]] = field(default_factory=dict)


NO_SOCKETS: Final = Sockets()


def sockets_among(descriptors: Iterable[Descriptor]) -> Sockets:
    """Those that are sockets for somebody, by their names alone."""
    main: list[Descriptor] = []
    crews: dict[str, list[Descriptor]] = {}
    for each in descriptors:
        if each.name == MAIN:
            main.append(each)
        elif each.name.startswith(_OF_CREW):
            crews.setdefault(each.name.removeprefix(_OF_CREW), []).append(each)
    return Sockets(tuple(main), {name: tuple(found) for name, found in crews.items()})


def lend(descriptors: Sequence[Descriptor]) -> list[socket.socket]:
    """These as listening TCP sockets: the manager holds them too, and they listen on when ours are
    closed. Raises `Invalid`, which names the one that is none, and has closed all of them then."""
    lent: list[socket.socket] = []
    try:
        for each in descriptors:
            lent.append(_socket(each))
            _check(each.name, lent[-1])
    except Invalid:
        for opened in lent:
            opened.close()
        for unopened in descriptors[len(lent) :]:
            os.close(unopened.number)
        raise
    return lent


def agree(where: Bind, lent: Iterable[socket.socket]) -> bool:
    """Whether these listen where the configuration says. Blocks for a host name."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = {address[0] for *_, address in found}
    return all(
        name[0] in addresses and where.port in (0, name[1])
        for name in (each.getsockname() for each in lent)
    )


def _socket(descriptor: Descriptor) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor.number)
    except OSError:
        raise Invalid(
            f"the service manager's descriptor {descriptor.name!r} is no socket: {_REMEDY}"
        ) from None


def _check(name: str, lent: socket.socket) -> None:
    if lent.family not in (socket.AF_INET, socket.AF_INET6):
        fault = "is not an internet socket"
    elif lent.type != socket.SOCK_STREAM or lent.proto not in (socket.IPPROTO_TCP, _MPTCP):
        fault = "is not a TCP socket"
    elif not lent.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        fault = "is not listening"
    else:
        return
    raise Invalid(f"the service manager's socket {name!r} {fault}: {_REMEDY}")
