"""The facade as a whole: the apps over one set of services, each at its door.

A changed configuration is a new set of services over the same parts, and so a new facade in the
place of the old one: nothing in it has to know that it can change.
"""

from __future__ import annotations

from dataclasses import replace

from daemon.api.access import Neighbourhood
from daemon.api.app import build_app
from daemon.api.crews.app import build_crew_app
from daemon.api.services import Services
from daemon.config.settings import Settings
from daemon.crews.catalog import Catalog
from daemon.doors import Doors, Facade
from daemon.serving import GuardedQuart


def neighbourhood(settings: Settings) -> Neighbourhood:
    """Who counts as local."""
    return Neighbourhood(
        open_to=settings.cookie.open_to,
        trusted_proxies=settings.server.trusted_proxies,
        public_hosts=frozenset(settings.server.public_hosts),
    )


class Front:
    """The main facade, and those of crews that have an address of their own."""

    def __init__(self, services: Services, doors: Doors, *, grace: float) -> None:
        self._services = services
        self._main = Facade(build_app(services), doors.main, grace=grace)
        self._crews = {
            name: Facade(_crew_app(name, services), sockets, grace=grace)
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
            neighbourhood=neighbourhood(settings),
            extension_origins=frozenset(settings.cookie.extension_origins),
            max_body=settings.server.max_body,
        )
        self._main.take(build_app(services))
        for name, own in self._crews.items():
            own.take(_crew_app(name, services))


def _crew_app(name: str, services: Services) -> GuardedQuart:
    return build_crew_app(name, services.crews, services.metrics, max_body=services.max_body)
