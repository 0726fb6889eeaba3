"""One run of the daemon, from its start to a stop or a kill, as `smartlinkd/app/tree.py` builds it.

Two parts are replaced, since they need sockets: an `AsgiServer` stands in for the HTTP server, and
the control socket's commands are called directly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import trio

from smartlinkd.admin.control_socket import Commands
from smartlinkd.app import components, http_apps, tree
from smartlinkd.app.components import Crews
from smartlinkd.auth.actor import Auth
from smartlinkd.browser.actor import Browser
from smartlinkd.config import Settings
from smartlinkd.net.client import HttpClient
from smartlinkd.nurseries import sole_error
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.supervision.blocking import BlockingMailbox
from smartlinkd.supervision.supervisor import Escalated
from smartlinkd.vault.actor import Vault
from tests.faults.sockets import AsgiServer, Control, build_tree

AnyMailbox = Mailbox[object] | BlockingMailbox[object]


class DaemonRun:
    """One run of the daemon, with its parts as attributes."""

    def __init__(self, settings: Settings, http: HttpClient, wall: Callable[[], float]) -> None:
        parts: dict[str, Any] = {}
        with pytest.MonkeyPatch.context() as patch:

            def keep(module: ModuleType, name: str, make: Callable[..., Any]) -> None:
                def made(*args: Any, **kwargs: Any) -> Any:
                    parts[name] = make(*args, **kwargs)
                    return parts[name]

                patch.setattr(module, name, made)

            keep(http_apps, "HttpApp", AsgiServer)
            keep(tree, "ControlSocket", Control)
            keep(tree, "Auth", partial(Auth, wall_clock=wall))
            keep(tree, "Vault", Vault)
            for name in ("make_browser", "make_conversion", "make_crews"):
                keep(tree, name, getattr(components, name))
            self.supervisor = build_tree(settings, http)
        self.directory = settings.state.directory
        self.serving = False
        self.ended = trio.Event()
        self.door: AsgiServer = parts["HttpApp"]
        self.browser: Browser = parts["make_browser"]
        self.crews: Crews = parts["make_crews"]
        self.commands: Commands = parts["ControlSocket"].commands
        self.mailboxes: dict[str, AnyMailbox] = {
            "auth": parts["Auth"].mailbox,
            "vault": parts["Vault"].mailbox,
            "browser": parts["make_browser"].mailbox,
            "conversion": parts["make_conversion"].mailbox,
            "crew tokens": parts["make_crews"].tokens.mailbox,
            "journal": parts["make_crews"].store.mailbox,
            "executor": parts["make_crews"].executor.mailbox,
        }
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

    @property
    def is_alive(self) -> bool:
        """False from a kill on, although threads that have begun keep its tasks for a while."""
        return not (self.ended.is_set() or self._life.cancel_called)

    def kill(self) -> None:
        """Stop as after SIGKILL. Connections end first: clients see no last step of a task."""
        self.serving = False
        self.door.reset_connections()
        self._life.cancel()
