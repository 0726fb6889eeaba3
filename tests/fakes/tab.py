"""A tab of the fake Chromium: it loads documents, runs known scripts and sends CDP events.

It has no JavaScript: `SCRIPTS` has a Python function for the source of each script that the daemon
sends. The scripts of the portal's pages are in `pages.py`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import trio

from smartlinkd.browser.page import CALL_BY_JSON
from tests.fakes.network import Exchange, Json, NetError

if TYPE_CHECKING:
    from tests.fakes.chromium import FakeChromium

MOST_REDIRECTS = 20
REDIRECTS = (301, 302, 303, 307, 308)

Script = Callable[["Tab", list[Any]], Awaitable[Any]]
SCRIPTS: dict[str, Script] = {}
"""Python functions, by the JavaScript source that they stand for."""


class CommandFailed(Exception):  # noqa: N818 - it says what happened
    """The browser answers the command with an error of this text."""


def script(source: str) -> Callable[[Script], Script]:
    """Register the decorated function for this JavaScript source."""

    def known(function: Script) -> Script:
        SCRIPTS[source] = function
        return function

    return known


class Lifetime:
    """A lifetime: `end()` cancels all blocks that run `within()` it."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self._scopes: set[trio.CancelScope] = set()

    def end(self) -> None:
        self.over.set()
        for scope in self._scopes:
            scope.cancel()

    @contextmanager
    def within(self) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.over.is_set():
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.remove(scope)


class Document:
    """The document in a tab. Its scripts end when the tab leaves it."""

    def __init__(self, url: str, status: int, loader_id: str) -> None:
        self.url = url
        self.status = status
        self.html = ""
        self.loader_id = loader_id
        self.form = "none"  # "none", "disabled" or "ready", as in links_form.js
        self.password = False
        self.lifetime = Lifetime()


class Tab:
    """A target of type page, and its session."""

    def __init__(self, chromium: FakeChromium, context_id: str) -> None:
        self.chromium = chromium
        self.context_id = context_id
        self.id = f"{chromium.pid:016X}{next(chromium.numbers):016X}"
        self.session_id = f"session-{self.id}"
        self.attached = False
        self.crashed = False
        self.spinning = False
        self.lifetime = Lifetime()
        self.document = Document("about:blank", 0, f"loader-{self.id}")
        self._network = False
        self._bodies: dict[str, bytes] = {}
        self.dialog: trio.Event | None = None

    # Faults

    def crash(self) -> None:
        """End the renderer process: the tab answers nothing more and reports the crash."""
        self.crashed = True
        self.end()
        self.send_event("Inspector.targetCrashed", {})

    def spin(self) -> None:
        """Enter an endless loop in the page's script: the tab answers nothing more."""
        self.spinning = True
        self.end()

    def end(self) -> None:
        """Cancel everything that runs in the tab."""
        self.document.lifetime.end()
        self.lifetime.end()

    @property
    def silent(self) -> bool:
        return self.crashed or self.spinning

    async def wait_dialog_closed(self) -> None:
        """Wait until no dialog is open."""
        if self.dialog is not None:
            await self.dialog.wait()

    def send_event(self, method: str, params: Json) -> None:
        """Send an event on the tab's session."""
        if self.attached:
            self.chromium.send({"method": method, "params": params, "sessionId": self.session_id})

    # Commands

    async def command(self, method: str, params: Json) -> Json:
        """Carry out one command. Raises `CommandFailed` if Chromium answers with an error."""
        match method:
            case "Page.navigate":
                return await self.navigate(params["url"])
            case "Runtime.evaluate":
                assert params["expression"] == "this"
                return {"result": {"type": "object", "objectId": self.document.loader_id}}
            case "Runtime.callFunctionOn":
                return await self._call_function(params)
            case "Network.enable":
                self._network = True
            case "Network.getResponseBody":
                if params["requestId"] not in self._bodies:
                    raise CommandFailed("No resource with given identifier found")
                body = self._bodies[params["requestId"]]
                return {"body": base64.b64encode(body).decode(), "base64Encoded": True}
            case "Page.handleJavaScriptDialog":
                if self.dialog is None:
                    raise CommandFailed("No dialog is showing")
                self.dialog.set()
                self.dialog = None
            case "Page.enable" | "Inspector.enable" | "Page.setLifecycleEventsEnabled":
                pass
            case _:
                raise CommandFailed(f"'{method}' wasn't found")
        return {}

    async def navigate(self, url: str) -> Json:
        """Load another document. Return when its head has arrived."""
        loader_id = f"loader-{next(self.chromium.numbers)}"
        answer = {"frameId": self.id, "loaderId": loader_id}
        if urlsplit(url).scheme not in ("http", "https", "about"):
            raise CommandFailed("Cannot navigate to invalid URL")
        exchange = Exchange("GET", url)
        if not url.startswith("about:"):
            try:
                exchange = await self.request("GET", url, loader_id=loader_id)
            except NetError as fault:
                return {**answer, "errorText": str(fault)}
        self.document.lifetime.end()
        self._bodies.clear()
        document = Document(exchange.url, exchange.status, loader_id)
        self.document = document
        self.send_event(
            "Page.frameNavigated",
            {"frame": {"id": self.id, "loaderId": loader_id, "url": exchange.url}},
        )
        self._send_lifecycle_event("init")
        self.chromium.nursery.start_soon(self._load, document, exchange)
        return answer

    def set_location(self, url: str) -> None:
        """Navigate as `location = url` does, which ends the script that sets it."""

        async def going() -> None:
            with self.lifetime.within():
                await self.navigate(url)

        self.chromium.nursery.start_soon(going)

    async def alert(self) -> None:
        """Show an alert, and wait until it is dismissed."""
        self.dialog = dialog = trio.Event()
        self.send_event("Page.javascriptDialogOpening", {"type": "alert", "message": "Sandbox"})
        await dialog.wait()

    # Requests

    async def request(
        self,
        method: str,
        url: str,
        *,
        loader_id: str = "",
        headers: dict[str, str] | None = None,
        body: bytes = b"",
        manual: bool = False,
    ) -> Exchange:
        """Send a request, follow redirects, and send the Network events of each step.

        Return when the head has arrived; with `manual`, return a redirect and do not follow it.

        Raises:
            NetError: when the request fails, or a script's redirect leads to another origin.
        """
        request_id = f"request-{next(self.chromium.numbers)}"
        lifetime = self.lifetime if loader_id else self.document.lifetime
        redirect: Json = {}
        last = Exchange(method, url)
        for _ in range(MOST_REDIRECTS):
            exchange = Exchange(
                method, url, self._headers(url, headers or {}), body, self.context_id
            )
            self._send_request_event(request_id, exchange, loader_id, redirect)
            foreign = redirect and not loader_id and _origin(url) != _origin(redirect["url"])
            if redirect and manual:
                self._send_failed_event(request_id, "net::ERR_ABORTED")
                return last
            if foreign:
                self._send_failed_event(request_id, "net::ERR_FAILED")
                raise NetError("net::ERR_FAILED")
            self.chromium.nursery.start_soon(self._carry, exchange, lifetime)
            try:
                await exchange.wait_head()
            except NetError as fault:
                self._send_failed_event(request_id, str(fault))
                raise
            except trio.Cancelled:
                exchange.under_way.cancel()
                raise
            if exchange.status not in REDIRECTS:
                response = {"status": exchange.status, "mimeType": exchange.mime_type}
                self._send_network_event(
                    "Network.responseReceived", {"requestId": request_id, "response": response}
                )
                self.chromium.nursery.start_soon(self._finish, request_id, exchange, lifetime)
                return exchange
            last, redirect = exchange, {"status": exchange.status, "url": url}
            url = urljoin(url, exchange.response_headers["location"])
            method = "GET"
        raise NetError("net::ERR_TOO_MANY_REDIRECTS")

    async def _carry(self, exchange: Exchange, lifetime: Lifetime) -> None:
        with lifetime.within():
            await self.chromium.network.carry(exchange)

    async def _finish(self, request_id: str, exchange: Exchange, lifetime: Lifetime) -> None:
        with lifetime.within():
            try:
                self._bodies[request_id] = await exchange.read()
            except NetError as fault:
                self._send_failed_event(request_id, str(fault))
            else:
                self._send_network_event("Network.loadingFinished", {"requestId": request_id})

    def _send_request_event(
        self, request_id: str, exchange: Exchange, loader_id: str, redirect: Json
    ) -> None:
        told: Json = {
            "requestId": request_id,
            "loaderId": loader_id or self.document.loader_id,
            "request": {"method": exchange.method, "url": exchange.url},
        }
        if redirect:
            told["redirectResponse"] = redirect
        self._send_network_event("Network.requestWillBeSent", told)

    def _send_failed_event(self, request_id: str, why: str) -> None:
        self._send_network_event(
            "Network.loadingFailed", {"requestId": request_id, "errorText": why}
        )

    def _send_network_event(self, method: str, params: Json) -> None:
        if self._network and not self.crashed:
            self.send_event(method, params)

    def _headers(self, url: str, headers: dict[str, str]) -> dict[str, str]:
        cookies = self.chromium.cookies(self.context_id, urlsplit(url).hostname or "")
        pairs = "; ".join(f"{name}={value}" for name, value in cookies.items())
        return {**headers, "cookie": pairs} if pairs else headers

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that the document's script can read, by name."""
        return self.chromium.cookies(self.context_id, urlsplit(self.document.url).hostname or "")

    # Scripts

    def run(self, job: Callable[[], Awaitable[object]]) -> None:
        """Run a job as the document's own script; it ends with the document."""
        document = self.document

        async def running() -> None:
            with document.lifetime.within():
                await job()

        self.chromium.nursery.start_soon(running)

    async def _load(self, document: Document, exchange: Exchange) -> None:
        from tests.fakes.pages import open_page

        with document.lifetime.within() as scope:
            if exchange.status:
                try:
                    document.html = (await exchange.read()).decode()
                except NetError:
                    return
            document.password = "type=password" in document.html.replace('"', "")
            self._send_lifecycle_event("DOMContentLoaded")
        if not scope.cancelled_caught:
            open_page(self)

    def _send_lifecycle_event(self, name: str) -> None:
        self.send_event(
            "Page.lifecycleEvent",
            {"frameId": self.id, "loaderId": self.document.loader_id, "name": name},
        )

    async def _call_function(self, params: Json) -> Json:
        document = self.document
        if params["objectId"] != document.loader_id:
            raise CommandFailed("Could not find object with given id")
        declaration = params["functionDeclaration"]
        function = next(SCRIPTS[each] for each in SCRIPTS if CALL_BY_JSON % each == declaration)
        arguments = json.loads(params["arguments"][0]["value"])
        value: Any = None
        with document.lifetime.within() as scope:
            value = await function(self, arguments)
        if scope.cancelled_caught:
            raise CommandFailed("Inspected target navigated or closed")
        if value is None:
            return {"result": {"type": "undefined"}}
        return {"result": {"type": "object", "value": json.loads(json.dumps(value))}}


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


@script("() => 1")
async def _one(_: Tab, __: list[Any]) -> int:
    await trio.lowlevel.checkpoint()
    return 1
