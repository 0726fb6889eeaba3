"""The facade as a whole: the apps over one set of services, each at its door.

A changed configuration is a new set of services over the same parts, and so a new facade in the
place of the old one: nothing in it has to know that it can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from socket import socket

import trio

from smartlinkd.api.app import build_app
from smartlinkd.api.client_address import ClientAccess
from smartlinkd.api.crews.app import build_crew_app
from smartlinkd.api.services import Rules, Services
from smartlinkd.config.settings import Settings
from smartlinkd.crews.reading.catalog import Catalog
from smartlinkd.doors import Doors
from smartlinkd.http_server import GuardedQuart, ServedApp, serve


def rules_of(settings: Settings) -> Rules:
    """The facade's own, by a configuration."""
    return Rules(
        client_access=ClientAccess(
            open_to=settings.cookie.open_to,
            trusted_proxies=settings.server.trusted_proxies,
            public_hosts=frozenset(settings.server.public_hosts),
        ),
        extension_origins=frozenset(settings.cookie.extension_origins),
        max_body=settings.server.max_body,
    )


class Facade:
    """An app as a supervised part: each instance serves on the same sockets.

    They are closed with its last one, at `stop`.
    """

    def __init__(self, app: GuardedQuart, sockets: Sequence[socket], *, grace: float) -> None:
        self._served = ServedApp(app)
        self._sockets = sockets
        self.grace = grace
        self._stop = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance."""
        self._stop = trio.Event()
        await serve(
            self._served,
            self._sockets,
            grace=self.grace,
            stop=self._stop,
            task_status=task_status,
        )

    def take(self, app: GuardedQuart) -> None:
        """Serve another app from now on. Requests under way end as they began."""
        self._served.replace(app)

    def stop(self) -> None:
        """Answer what was asked, and return."""
        self._stop.set()
        # Whoever connects from now on is refused at once, and not kept waiting by the kernel for a
        # daemon that will never look. At a socket of the service manager's they do wait there, and
        # rightly so, for the next daemon: closing ours, without a shutdown, takes nothing from it.
        for listening in self._sockets:
            listening.close()


class Front:
    """The main facade, and those of crews that have an address of their own."""

    def __init__(self, services: Services, doors: Doors, *, grace: float) -> None:
        self._services = services
        self._main = Facade(build_app(services), doors.main, grace=grace)
        self._crews = {
            name: Facade(build_crew_app(name, services), sockets, grace=grace)
            for name, sockets in doors.crews.items()
        }

    def facades(self) -> dict[str, Facade]:
        """All of them, by the name of the part that each is."""
        return {"http": self._main, **{f"http of {name}": own for name, own in self._crews.items()}}

    def take(self, settings: Settings, catalog: Catalog) -> None:
        """Serve by these from now on. Requests under way end as they began."""
        services = self._services = replace(
            self._services,
            crews=replace(self._services.crews, catalog=catalog),
            rules=rules_of(settings),
        )
        self._main.take(build_app(services))
        for name, own in self._crews.items():
            own.take(build_crew_app(name, services))
