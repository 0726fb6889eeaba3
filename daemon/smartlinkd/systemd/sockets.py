"""Listening sockets that systemd opened and keeps open (socket activation).

Clients that connect while no daemon runs wait in the socket's backlog, so a restart refuses nobody.
`FileDescriptorName=` in a socket unit says what a socket is for: `http` is the main address,
`crew-NAME` that of a crew with a `bind`. A socket with another name is not used. That includes the
unit's own name, the default: it may be meant for a crew, and the main address serves everything.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from smartlinkd.errors import Invalid
from smartlinkd.net.addresses import Bind
from smartlinkd.systemd.environment import Descriptor

MAIN: Final = "http"
NAMES: Final = "FileDescriptorName=http, or crew-NAME for the crew of that name"
_CREW_PREFIX: Final = "crew-"


@dataclass(frozen=True)
class ActivatedSockets:
    """systemd's sockets by what they are for. An address may have several.

    Attributes:
        crews: by the crew's name.
    """

    main: tuple[Descriptor, ...] = ()
    crews: Mapping[str, tuple[Descriptor, ...]] = field(default_factory=dict)


NO_SOCKETS: Final = ActivatedSockets()


def select_sockets(descriptors: Iterable[Descriptor]) -> ActivatedSockets:
    """Select the descriptors whose names are those of sockets. It looks at the names alone."""
    main: list[Descriptor] = []
    crews: dict[str, list[Descriptor]] = {}
    for each in descriptors:
        if each.name == MAIN:
            main.append(each)
        elif each.name.startswith(_CREW_PREFIX):
            crews.setdefault(each.name.removeprefix(_CREW_PREFIX), []).append(each)
    return ActivatedSockets(tuple(main), {name: tuple(found) for name, found in crews.items()})


def open_sockets(descriptors: Sequence[Descriptor]) -> list[socket.socket]:
    """Return the listening TCP sockets behind descriptors. Closing them ends only our copies.

    Raises:
        Invalid: one of them is no such socket. All of them are closed then.
    """
    opened: list[socket.socket] = []
    try:
        for each in descriptors:
            opened.append(_listening_socket(each))
    except Invalid:
        for sock in opened:
            sock.close()
        for unopened in descriptors[len(opened) :]:
            os.close(unopened.number)
        raise
    return opened


def listens_at(where: Bind, sockets: Iterable[socket.socket]) -> bool:
    """Return True if all sockets listen at `where`. Blocks while a host name is resolved."""
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = {address[0] for *_, address in found}
    return all(
        name[0] in addresses and where.port in (0, name[1])
        for name in (each.getsockname() for each in sockets)
    )


def _listening_socket(descriptor: Descriptor) -> socket.socket:
    with suppress(OSError):  # no socket at all
        sock = socket.socket(fileno=descriptor.number)
        is_listening = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if is_listening and sock.family in (socket.AF_INET, socket.AF_INET6):
            return sock
        sock.detach()
    raise Invalid(
        f"the service manager's descriptor {descriptor.name!r} is no listening TCP socket: "
        "its unit needs ListenStream=ADDRESS:PORT, and Accept=no"
    )
