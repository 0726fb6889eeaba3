"""The HTTP apps, each served on its listening sockets.

A reload builds new apps over the new settings, and puts them in the place of the old ones. So no
app has to know that its settings, or the default crew, can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from socket import socket
from typing import TYPE_CHECKING

import trio

from smartlinkd.api.app import build_app
from smartlinkd.api.client_address import ClientAccess
from smartlinkd.api.crews.app import build_crew_app
from smartlinkd.api.services import Rules, Services
from smartlinkd.app.listeners import Listeners
from smartlinkd.config.settings import Settings
from smartlinkd.http_server import GuardedQuart, ServedApp, serve

if TYPE_CHECKING:
    from smartlinkd.mcp.over_http import McpActor


def api_rules(settings: Settings) -> Rules:
    """Return the HTTP API's own settings."""
    return Rules(
        client_access=ClientAccess(
            open_to=settings.cookie.open_to,
            trusted_proxies=settings.server.trusted_proxies,
            public_hosts=frozenset(settings.server.public_hosts),
        ),
        extension_origins=frozenset(settings.cookie.extension_origins),
        max_body=settings.server.max_body,
    )


class HttpApp:
    """A supervised actor that serves one app. Each instance uses the same sockets until `stop`."""

    def __init__(self, app: GuardedQuart, sockets: Sequence[socket], *, grace: float) -> None:
        """`grace` is the time in seconds that running requests get at a stop."""
        self._served = ServedApp(app)
        self._sockets = sockets
        self.grace = grace
        self._stop = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve as one instance."""
        self._stop = trio.Event()
        await serve(
            self._served,
            self._sockets,
            grace=self.grace,
            stop=self._stop,
            task_status=task_status,
        )

    def replace_app(self, app: GuardedQuart) -> None:
        """Serve another app from now on. Running requests end in the old one."""
        self._served.replace(app)

    def stop(self) -> None:
        """Close the sockets, and let `run` return when the running requests are answered."""
        self._stop.set()
        # New clients are refused at once, and do not wait in the kernel's queue for nobody. At a
        # socket of systemd's they do wait, for the next daemon: closing ours does not close it.
        for listening in self._sockets:
            listening.close()


class HttpApps:
    """The main app, and those of crews that have an address of their own."""

    def __init__(
        self,
        services: Services,
        listeners: Listeners,
        *,
        grace: float,
        mcp: McpActor | None = None,
    ) -> None:
        self._services = services
        self._mcp = mcp
        self._main = HttpApp(self._build_main(), listeners.main, grace=grace)
        self._crews = {
            name: HttpApp(build_crew_app(name, services), sockets, grace=grace)
            for name, sockets in listeners.crews.items()
        }

    def by_name(self) -> dict[str, HttpApp]:
        """Return all apps by the names of their actors."""
        return {"http": self._main, **{f"http of {name}": app for name, app in self._crews.items()}}

    def apply_config(self, settings: Settings) -> None:
        """Serve by these settings, and the executor's present crews, from now on.

        Running requests end by the old ones.
        """
        self._services = replace(self._services, rules=api_rules(settings))
        self._main.replace_app(self._build_main())
        for name, app in self._crews.items():
            app.replace_app(build_crew_app(name, self._services))

    def _build_main(self) -> GuardedQuart:
        app = build_app(self._services)
        if self._mcp is not None:
            self._mcp.add_to(app, self._services)
        return app
