"""A fake Chromium: a server of the DevTools protocol in this process, with faults.

It imitates only what the daemon relies on: answers, events, and missing answers after a death.
The contract tests in this folder compare it with a real Chromium.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from math import inf
from typing import Any
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_server_stream

from tests.fakes.gate import Gate
from tests.fakes.network import Json, Network
from tests.fakes.tab import CommandFailed, Tab

NO_SUCH_SESSION = -32001
NO_SUCH_METHOD = -32601
SERVER_ERROR = -32000
NOTHING_TO_DO = frozenset(
    {
        "Target.setDiscoverTargets",
        "Browser.setDownloadBehavior",
        "Browser.grantPermissions",
    }
)
DISMISS = "Page.handleJavaScriptDialog"
# The browser answers all other commands in the order in which they came.
LONG = frozenset({"Page.navigate", "Runtime.callFunctionOn"})


class FakeChromium:
    """The protocol side of a fake browser process. `nursery` belongs to that process."""

    def __init__(self, pid: int, network: Network, nursery: trio.Nursery) -> None:
        self.pid = pid
        self.network = network
        self.nursery = nursery
        self.contexts: dict[str, list[Json]] = {}
        self.tabs: dict[str, Tab] = {}
        self.numbers = itertools.count(1)
        self._gates: dict[str, Gate] = {}
        self._running = trio.Event()
        self._running.set()
        self._late: tuple[str, float] = ("", 0.0)
        self._outgoing, self._to_write = trio.open_memory_channel[str](inf)

    # Faults

    def stop(self) -> None:
        """Suspend the browser as SIGSTOP does; its sockets stay open."""
        self._running = trio.Event()

    def resume(self) -> None:
        """Continue the browser as SIGCONT does."""
        self._running.set()

    def hold(self, method: str) -> Gate:
        """Make the next command of this method wait at the returned gate."""
        gate = self._gates[method] = Gate()
        return gate

    def delay_answer(self, method: str, seconds: float) -> None:
        """Delay the next answer to this method by so many seconds."""
        self._late = (method, seconds)

    def answers_at_once(self, method: str) -> bool:
        """True if the browser runs and no delay is set for this method."""
        return self._running.is_set() and self._late[0] != method

    # Protocol

    def send(self, message: Json) -> None:
        """Queue a message; the browser sends it when it runs."""
        self._outgoing.send_nowait(json.dumps(message))

    def cookies(self, context_id: str, host: str) -> dict[str, str]:
        """Return the cookies, by name, that a request from the context to the host carries."""
        found = {}
        for cookie in self.contexts.get(context_id, []):
            domain = cookie.get("domain", "")
            its_host = urlsplit(cookie.get("url", "")).hostname
            if (domain and f".{host}".endswith(domain)) or (not domain and host == its_host):
                found[cookie["name"]] = cookie["value"]
        return found

    async def accept(self, stream: trio.abc.Stream) -> None:
        """Serve one client until it disconnects."""
        async with trio.open_nursery() as nursery:
            request = await wrap_server_stream(nursery, stream)
            websocket = await request.accept()
            nursery.start_soon(self._write, websocket)
            try:
                while True:
                    await self._take(json.loads(await websocket.get_message()), nursery)
            except ConnectionClosed:
                pass
            # `disposeOnDetach`: a context ends with the connection that created it.
            for tab in list(self.tabs.values()):
                tab.end()
            self.tabs.clear()
            self.contexts.clear()
            nursery.cancel_scope.cancel()

    async def _write(self, websocket: WebSocketConnection) -> None:
        async for text in self._to_write:
            await self._running.wait()
            try:
                await websocket.send_message(text)
            except ConnectionClosed:
                return

    async def _take(self, command: Json, nursery: trio.Nursery) -> None:
        await self._running.wait()
        method = command["method"]
        tab = self._tab_of_session(command.get("sessionId"))
        held = tab is not None and tab.dialog is not None and method != DISMISS
        if held or method in LONG or method in self._gates or self._late[0] == method:
            nursery.start_soon(self._answer, command)
        else:
            await self._answer(command)

    async def _answer(self, command: Json) -> None:
        method, reply = command["method"], {"id": command["id"]}
        tab: Tab | None = None
        if session_id := command.get("sessionId"):
            reply["sessionId"] = session_id
            tab = self._tab_of_session(session_id)
            if tab is None:
                self._reply(reply, error=(NO_SUCH_SESSION, "Session with given id not found."))
                return
        if gate := self._gates.pop(method, None):
            await gate.enter()
        if tab is not None and method != DISMISS:
            await tab.wait_dialog_closed()
        if tab is not None and tab.silent:
            return
        params = command.get("params", {})
        try:
            if tab is None:
                result = self._command(method, params)
            else:
                result = await tab.command(method, params)
        except CommandFailed as failure:
            code = NO_SUCH_METHOD if str(failure) == f"'{method}' wasn't found" else SERVER_ERROR
            if tab is None or not tab.silent:
                self._reply(reply, error=(code, str(failure)))
            return
        if self._late[0] == method:
            _, seconds = self._late
            self._late = ("", 0.0)
            await trio.sleep(seconds)
        if tab is None or not tab.silent:
            self._reply(reply, result=result)

    def _reply(
        self, reply: Json, *, result: Json | None = None, error: tuple[int, str] | None = None
    ) -> None:
        if error is not None:
            self.send({**reply, "error": {"code": error[0], "message": error[1]}})
        else:
            self.send({**reply, "result": result})

    def _command(self, method: str, params: Json) -> Json:
        handlers: dict[str, Callable[[Json], Json]] = {
            "Browser.getVersion": lambda _: {"product": "Chrome/1"},
            "Target.createBrowserContext": self._create_context,
            "Target.disposeBrowserContext": self._dispose_context,
            "Target.createTarget": self._create_target,
            "Target.attachToTarget": self._attach,
            "Target.closeTarget": self._close_target,
            "Storage.setCookies": self.set_cookies,
            "SystemInfo.getProcessInfo": self._processes,
        }
        if method in NOTHING_TO_DO:
            return {}
        if method not in handlers:
            raise CommandFailed(f"'{method}' wasn't found")
        return handlers[method](params)

    def _create_context(self, _: Json) -> Json:
        id_ = f"context-{next(self.numbers)}"
        self.contexts[id_] = []
        return {"browserContextId": id_}

    def _dispose_context(self, params: Json) -> Json:
        if params["browserContextId"] not in self.contexts:
            raise CommandFailed("Failed to find context with id")
        for tab in [one for one in self.tabs.values() if one.context_id in params.values()]:
            self._close(tab)
        del self.contexts[params["browserContextId"]]
        return {}

    def _create_target(self, params: Json) -> Json:
        if params["browserContextId"] not in self.contexts:
            raise CommandFailed("Failed to find browser context with id")
        tab = Tab(self, params["browserContextId"])
        self.tabs[tab.id] = tab
        info = {"targetId": tab.id, "type": "page", "browserContextId": tab.context_id}
        self.send({"method": "Target.targetCreated", "params": {"targetInfo": info}})
        return {"targetId": tab.id}

    def _attach(self, params: Json) -> Json:
        tab = self._tab(params)
        tab.attached = True
        told = {"sessionId": tab.session_id, "targetInfo": {"targetId": tab.id, "type": "page"}}
        self.send({"method": "Target.attachedToTarget", "params": told})
        return {"sessionId": tab.session_id}

    def _close_target(self, params: Json) -> Json:
        self._close(self._tab(params))
        return {"success": True}

    def set_cookies(self, params: Json) -> Json:
        self.contexts[params["browserContextId"]] = params["cookies"]
        return {}

    def _processes(self, _: Json) -> Json:
        renderers = [{"type": "renderer", "id": self.pid + 1, "cpuTime": 0}]
        return {"processInfo": [{"type": "browser", "id": self.pid, "cpuTime": 0}, *renderers]}

    def _close(self, tab: Tab) -> None:
        del self.tabs[tab.id]
        tab.end()
        if tab.attached:
            told = {"sessionId": tab.session_id, "targetId": tab.id}
            self.send({"method": "Target.detachedFromTarget", "params": told})

    def _tab(self, params: Json) -> Tab:
        if params["targetId"] not in self.tabs:
            raise CommandFailed("No target with given id found")
        return self.tabs[params["targetId"]]

    def _tab_of_session(self, session_id: Any) -> Tab | None:
        found = (tab for tab in self.tabs.values() if tab.session_id == session_id)
        return next(found, None)
