"""One life of the daemon: its own tree of parts, from a start to an end in order or to a kill.

All that is played here is what needs a socket of its own: the HTTP server, whose place a `Door`
takes, and the control socket, whose commands are called as they are. Who starts after whom, who
depends on whom and who is stopped when, is what `smartlinkd/app/tree.py` says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

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
from smartlinkd.supervision.supervisor import Escalated
from smartlinkd.systemd.environment import NO_SYSTEMD
from smartlinkd.systemd.manager import ServiceManager
from smartlinkd.vault.actor import Vault
from tests.fakes.network import Exchange
from tests.faults import door

URL = "http://localhost"
CUT = "connection reset"
REFUSED = "connection refused"


class Door(door.Door):
    """One whose connections can be cut, as the kernel does when a process has ended."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._connected: dict[int, Exchange] = {}

    def ask(self, exchange: Exchange, gone: trio.Event) -> None:
        """Have it answered; refused when nobody listens."""
        try:
            assert self.open
            super().ask(exchange, gone)
        except (AssertionError, RuntimeError):  # its nursery may be closing at this very moment
            exchange.end(REFUSED)

    def cut(self) -> None:
        self.stop()
        for exchange in list(self._connected.values()):
            exchange.end(CUT)

    async def _answer(self, exchange: Exchange, gone: trio.Event) -> None:
        self._connected[id(exchange)] = exchange
        try:
            await super()._answer(exchange, gone)
        finally:
            del self._connected[id(exchange)]


class Control:
    """The control socket, without the socket."""

    def __init__(self, _: Path, commands: Commands) -> None:
        self.commands = commands

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()


class _Doors:
    """Nothing is listened to."""

    urls = (URL,)
    main = ()
    ports: frozenset[int] = frozenset()

    def __init__(self) -> None:
        self.crews: dict[str, Any] = {}
        self.crew_urls: dict[str, str] = {}


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
            patch.setattr(http_apps, "HttpApp", kept("door", Door))
            patch.setattr(tree, "ControlSocket", kept("control", Control))
            patch.setattr(tree, "Auth", kept("auth", partial(Auth, wall_clock=wall)))
            patch.setattr(tree, "Vault", kept("vault", Vault))
            patch.setattr(tree, "make_browser", kept("browser", makers.make_browser))
            patch.setattr(tree, "make_conversion", kept("conversion", makers.make_conversion))
            patch.setattr(tree, "make_crews", kept("crews", makers.make_crews))
            catalog = read_catalog(settings)
            doors = cast(Any, _Doors())
            self.supervisor = tree.build_supervisor(
                settings,
                http,
                catalog,
                doors,
                ServiceManager(NO_SYSTEMD),
                log_buffer=LogBuffer(),
                read_settings=None,
            )
        self.directory = settings.state.directory
        self.serving = False
        self.ended = trio.Event()
        self.door: Door = parts["door"]
        self.auth: Auth = parts["auth"]
        self.vault: Vault = parts["vault"]
        self.browser: Browser = parts["browser"]
        self.conversion: ConversionService = parts["conversion"]
        self.crews: Crews = parts["crews"]
        self.commands: Commands = parts["control"].commands
        self._life = trio.CancelScope()

    async def live(self) -> Escalated | None:
        """Returns why it has given up, if it has."""
        try:
            with self._life:
                await self.supervisor.run(self)
        except Escalated as why:
            return why
        finally:
            self.serving = False
            self.door.cut()
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
        self.door.cut()
        self._life.cancel()
