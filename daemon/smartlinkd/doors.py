"""The addresses that the daemon answers at: its own, and those of crews with a `bind`.

They are opened before anything is started, so that a port that is taken ends the start at once. A
crew's own is no reason to: that crew is then served at the main address alone, and the log says so.

Where the service manager has opened one already, that one is used, and outlives the daemon.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from itertools import chain
from socket import socket

from smartlinkd.config import Problem, Settings
from smartlinkd.config.checks import open_cookie
from smartlinkd.crews.reading.catalog import UNDER
from smartlinkd.errors import Invalid
from smartlinkd.http_server import bind
from smartlinkd.http_server.sockets import is_absent, tell_of_absence
from smartlinkd.net.addresses import Bind
from smartlinkd.systemd.environment import Descriptor
from smartlinkd.systemd.sockets import NO_SOCKETS, ActivatedSockets, listens_at, open_sockets

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Doors:
    """Listening sockets; an address may have several. `crews` are by the crew's name, and
    `crew_binds` what they were opened for. With `lent` it is the service manager who opened `main`.
    """

    main: Sequence[socket]
    crews: Mapping[str, Sequence[socket]]
    crew_binds: Mapping[str, Bind]
    lent: bool

    @property
    def urls(self) -> tuple[str, ...]:
        """The main address, as it is called."""
        return tuple(_url(door) for door in self.main)

    def exposed(self, settings: Settings) -> Iterator[Problem]:
        """What is less protected than the configuration alone tells: the service manager's sockets
        need not listen where that says."""
        if not settings.server.bind.is_loopback:
            return  # it has told of that
        for door in self.main:
            if not ip_address(door.getsockname()[0]).is_loopback:
                yield from open_cookie(settings.cookie, f"the daemon listens at {_url(door)}")

    @property
    def crew_urls(self) -> dict[str, str]:
        """Those of crews."""
        return {name: _url(doors[0]) for name, doors in self.crews.items()}

    @property
    def ports(self) -> frozenset[int]:
        """Of all of them."""
        return frozenset(door.getsockname()[1] for door in chain(self.main, *self.crews.values()))


@contextmanager
def open_doors(
    main: Bind, crews: Mapping[str, Bind], given: ActivatedSockets = NO_SOCKETS
) -> Iterator[Doors]:
    """Listen for the length of the block. Blocks. Raises `Invalid` for the main address.

    `given` are the service manager's sockets, which go before what is configured.
    """
    with ExitStack() as opened:
        own = _open(main, given.main, "server.bind", opened)
        of_crews = _crew_doors(crews, given.crews, opened)
        crew_binds = {name: crews[name] for name in of_crews}
        yield Doors(own, of_crews, crew_binds, lent=bool(given.main))


def _open(
    where: Bind,
    given: Sequence[Descriptor],
    setting: str,
    opened: ExitStack,
    *,
    early: bool = False,
) -> Sequence[socket]:
    if given:
        lent = open_sockets(given)
        if not listens_at(where, lent):
            listening = ", ".join(_url(each) for each in lent)
            logger.warning(
                "%s is %s, but the service manager's socket %r listens at %s, which counts: give "
                "its unit and the configuration the same address (server.bind's socket has it from "
                "`sudo ./run install`, an instance's with its --instance NAME)",
                *(setting, where, given[0].name, listening),
            )
        for each in lent:
            # The manager may have opened it for an address that comes later (FreeBind=).
            address = each.getsockname()[0]
            if is_absent(address):
                tell_of_absence(setting, address)
    sockets: Sequence[socket] = (
        lent if given else bind(where.host, where.port, setting=setting, early=early)
    )
    for each in sockets:
        opened.callback(each.close)
    return sockets


def _crew_doors(
    crews: Mapping[str, Bind], given: Mapping[str, Sequence[Descriptor]], opened: ExitStack
) -> dict[str, Sequence[socket]]:
    doors: dict[str, Sequence[socket]] = {}
    for name, where in crews.items():
        try:
            # Nobody would try again after a boot at which the daemon is up before the network.
            doors[name] = _open(
                where, given.get(name, ()), f"crew {name}: bind", opened, early=True
            )
        except Invalid as fault:
            logger.error(  # noqa: TRY400 - its text is all there is to tell
                "%s; until then it is served at %s of the main address alone", fault, UNDER + name
            )
    for name in given.keys() - crews.keys():
        logger.error(
            "the service manager has a socket for crew %s, and no crew of that name has a `bind`: "
            "who connects there waits in vain",
            name,
        )
        for descriptor in given[name]:
            os.close(descriptor.number)
    return doors


def _url(listening: socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
