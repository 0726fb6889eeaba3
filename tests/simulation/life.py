"""One run of the daemon, from its start to a stop or a kill, as `smartlinkd/app/tree.py` builds it.

Two parts are replaced, since they need sockets: an `AsgiServer` stands in for the HTTP server, and
the control socket's commands are called directly.
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
from smartlinkd.net.client import HttpClient
from smartlinkd.nurseries import sole_error
from smartlinkd.supervision.supervisor import Escalated
from smartlinkd.vault.actor import Vault
from tests.faults.sockets import AsgiServer, Control, build_tree


class DaemonRun:
    """One run of the daemon, with its parts as attributes."""

    def __init__(self, settings: Settings, http: HttpClient, wall: Callable[[], float]) -> None:
        parts: dict[str, Any] = {}

        def recording(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **kwargs: Any) -> Any:
                parts[name] = make(*args, **kwargs)
                return parts[name]

            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(http_apps, "HttpApp", recording("door", AsgiServer))
            patch.setattr(tree, "ControlSocket", recording("control", Control))
            patch.setattr(tree, "Auth", recording("auth", partial(Auth, wall_clock=wall)))
            patch.setattr(tree, "Vault", recording("vault", Vault))
            patch.setattr(tree, "make_browser", recording("browser", makers.make_browser))
            patch.setattr(tree, "make_conversion", recording("conversion", makers.make_conversion))
            patch.setattr(tree, "make_crews", recording("crews", makers.make_crews))
            self.supervisor = build_tree(settings, http)
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

    async def run(self) -> Escalated | None:
        """Run the daemon to its end. Return its error; None after a stop or a kill."""
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
        """Note that the start has ended. The supervisor calls it as a `trio.TaskStatus`."""
        self.serving = True

    def stop(self) -> None:
        """Stop as after SIGTERM."""
        self.supervisor.stop()

    def kill(self) -> None:
        """Stop as after SIGKILL. Connections end first: clients see no last step of a task."""
        self.serving = False
        self.door.reset_connections()
        self._life.cancel()
