"""The listening sockets: the daemon's own, and those of crews with a `bind`.

They are opened before any actor starts, so that a main port in use ends the start at once. A crew
whose own port is in use is served at the main address alone, and the log says so. A socket that
systemd has opened is used instead, and outlives the daemon.
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
from smartlinkd.crews.catalog.catalog import UNDER
from smartlinkd.errors import Invalid
from smartlinkd.http_server import bind
from smartlinkd.http_server.sockets import is_absent
from smartlinkd.net.addresses import Bind
from smartlinkd.systemd.environment import Descriptor
from smartlinkd.systemd.sockets import NO_SOCKETS, ActivatedSockets, listens_at, open_sockets

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listeners:
    """Listening sockets; an address may have several (IPv4 and IPv6)."""

    main: Sequence[socket]
    crews: Mapping[str, Sequence[socket]]
    """By the crew's name."""
    crew_binds: Mapping[str, Bind]
    """The addresses that `crews` were opened for."""
    is_activated: bool
    """True if systemd opened `main`."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The URLs of the main address."""
        return tuple(_url(listener) for listener in self.main)

    @property
    def crew_urls(self) -> dict[str, str]:
        """The URLs of crews with an address of their own, by name."""
        return {name: _url(listeners[0]) for name, listeners in self.crews.items()}

    @property
    def ports(self) -> frozenset[int]:
        """The ports of all sockets."""
        every = chain(self.main, *self.crews.values())
        return frozenset(listener.getsockname()[1] for listener in every)

    def warnings(self, settings: Settings) -> Iterator[Problem]:
        """Yield what is exposed more than the configuration says: systemd's sockets may listen
        elsewhere."""
        if not settings.server.bind.is_loopback:
            return  # the configuration's own warnings have it
        for listener in self.main:
            if not ip_address(listener.getsockname()[0]).is_loopback:
                yield from open_cookie(settings.cookie, f"the daemon listens at {_url(listener)}")


@contextmanager
def open_listeners(
    main: Bind, crews: Mapping[str, Bind], activated: ActivatedSockets = NO_SOCKETS
) -> Iterator[Listeners]:
    """Listen for the length of the block. Blocks.

    Args:
        activated: systemd's sockets, which take precedence over the configured addresses.

    Raises:
        Invalid: the main address cannot be listened at.
    """
    with ExitStack() as stack:
        own = _open(main, activated.main, "server.bind", stack)
        of_crews = _open_for_crews(crews, activated.crews, stack)
        crew_binds = {name: crews[name] for name in of_crews}
        yield Listeners(own, of_crews, crew_binds, is_activated=bool(activated.main))


def _open(
    address: Bind,
    activated: Sequence[Descriptor],
    setting: str,
    stack: ExitStack,
    *,
    early: bool = False,
) -> Sequence[socket]:
    sockets: Sequence[socket]
    if activated:
        sockets = open_sockets(activated)
        _warn_of_other_addresses(address, sockets, activated[0].name, setting)
    else:
        sockets = bind(address.host, address.port, setting=setting, early=early)
    for each in sockets:
        stack.callback(each.close)
        host = each.getsockname()[0]
        if is_absent(host):
            text = "%s: this machine has no address %s yet; it is served there once it has"
            logger.warning(text, setting, host)
    return sockets


def _warn_of_other_addresses(
    address: Bind, sockets: Sequence[socket], unit: str, setting: str
) -> None:
    if not listens_at(address, sockets):
        listening = ", ".join(_url(each) for each in sockets)
        logger.warning(
            "%s is %s, but the service manager's socket %r listens at %s, which counts: give "
            "its unit and the configuration the same address (server.bind's socket has it from "
            "`sudo ./run install`, an instance's with its --instance NAME)",
            *(setting, address, unit, listening),
        )


def _open_for_crews(
    crews: Mapping[str, Bind], activated: Mapping[str, Sequence[Descriptor]], stack: ExitStack
) -> dict[str, Sequence[socket]]:
    opened: dict[str, Sequence[socket]] = {}
    for name, address in crews.items():
        try:
            # `early`: at a boot the daemon may be up before the network, and nothing tries again.
            opened[name] = _open(
                address, activated.get(name, ()), f"crew {name}: bind", stack, early=True
            )
        except Invalid as fault:
            logger.error(  # noqa: TRY400 - the text says all
                "%s; until then it is served at %s of the main address alone", fault, UNDER + name
            )
    for name in activated.keys() - crews.keys():
        logger.error(
            "the service manager has a socket for crew %s, and no crew of that name has a `bind`: "
            "who connects there waits in vain",
            name,
        )
        for descriptor in activated[name]:
            os.close(descriptor.number)
    return opened


def _url(listening: socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
