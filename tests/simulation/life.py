"""One life of the daemon: its own tree of parts, from a start to an end in order or to a kill.

All that is played here is what needs a socket: the HTTP server, whose place an `AsgiServer`
takes, and the control socket, whose commands are called as they are. Who starts after whom, who
depends on whom and who is stopped when, is what `smartlinkd/app/tree.py` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from smartlinkd.admin.control_socket import Commands
from smartlinkd.app import components as makers
from smartlinkd.app import http_apps, tree
from smartlinkd.app.components import Crews
from smartlinkd.auth.actor import Auth
from smartlinkd.browser.actor import Browser
from smartlinkd.config import Settings
from smartlinkd.conversion.service import ConversionService
from smartlinkd.crews.catalog.catalog import read_catalog
from smartlinkd.monitoring.log_buffer import LogBuffer
from smartlinkd.net.client import HttpClient
from smartlinkd.nurseries import sole_error
from smartlinkd.supervision.supervisor import Escalated
from smartlinkd.systemd.environment import NO_SYSTEMD
from smartlinkd.systemd.manager import ServiceManager
from smartlinkd.vault.actor import Vault
from tests.faults.door import AsgiServer, Control, no_sockets


class Life:
    """A daemon process. `live` is its life; whoever holds it may end it, or strike at a part."""

    def __init__(self, settings: Settings, http: HttpClient, wall: Callable[[], float]) -> None:
        parts: dict[str, Any] = {}

        def kept(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **kwargs: Any) -> Any:
                parts[name] = make(*args, **kwargs)
                return parts[name]

            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(http_apps, "HttpApp", kept("door", AsgiServer))
            patch.setattr(tree, "ControlSocket", kept("control", Control))
            patch.setattr(tree, "Auth", kept("auth", partial(Auth, wall_clock=wall)))
            patch.setattr(tree, "Vault", kept("vault", Vault))
            patch.setattr(tree, "make_browser", kept("browser", makers.make_browser))
            patch.setattr(tree, "make_conversion", kept("conversion", makers.make_conversion))
            patch.setattr(tree, "make_crews", kept("crews", makers.make_crews))
            catalog = read_catalog(settings)
            self.supervisor = tree.build_supervisor(
                settings,
                http,
                catalog,
                no_sockets(),
                ServiceManager(NO_SYSTEMD),
                log_buffer=LogBuffer(),
                read_settings=None,
            )
        self.directory = settings.state.directory
        self.serving = False
        self.ended = trio.Event()
        self.door: AsgiServer = parts["door"]
        self.auth: Auth = parts["auth"]
        self.vault: Vault = parts["vault"]
        self.browser: Browser = parts["browser"]
        self.conversion: ConversionService = parts["conversion"]
        self.crews: Crews = parts["crews"]
        self.commands: Commands = parts["control"].commands
        self._life = trio.CancelScope()

    async def live(self) -> Escalated | None:
        """Returns why it has given up, if it has. A start may fail while it is killed."""
        try:
            async with sole_error():
                with self._life:
                    await self.supervisor.run(self)
        except Escalated as why:
            return None if self._life.cancel_called else why
        finally:
            self.serving = False
            self.door.reset_connections()
            self.ended.set()
        return None

    def started(self, _: None = None) -> None:
        """As a `trio.TaskStatus` has it."""
        self.serving = True

    def stop(self) -> None:
        """SIGTERM."""
        self.supervisor.stop()

    def kill(self) -> None:
        """SIGKILL. What its tasks still do before they see it must not be seen by anybody."""
        self.serving = False
        self.door.reset_connections()
        self._life.cancel()
