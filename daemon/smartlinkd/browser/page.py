"""Tabs: a `BrowserContext` holds an account's cookies in memory, a `Page` is one tab in it.

    context = await BrowserContext.create(connection, cookies)
    page = await context.new_page()
    await page.goto("https://portal.example/")
    status = await page.evaluate("async (path) => (await fetch(path)).status", "/api/x")

A page that raised `PageGone` or `CallTimedOut` should be closed; nothing here revives it.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import cast

import trio
from pydantic import JsonValue

from smartlinkd.browser.capture import NETWORK_BUFFERS, CapturedResponse, capture
from smartlinkd.browser.cdp import CALL_DEADLINE, CdpConnection, CdpSession, JsonObject
from smartlinkd.browser.errors import (
    BrowserFailed,
    ContextLost,
    NavigationFailed,
    ProtocolError,
    ScriptFailed,
)
from smartlinkd.untrusted import first_line

logger = logging.getLogger(__name__)

UrlListener = Callable[[str, bool], None]
"""Called with a URL that a tab shows, and `is_other`: True if it is not the tab's own but that of a
frame (which may still be on its way there) or of a pop-up."""

NAVIGATION_DEADLINE = 30.0
"""Seconds. A page of the portal takes two or three to load; a slow line several times that."""
NAVIGATION_EVENT_QUEUE = 1024  # frames send some ten events each while a page loads
MAX_OTHER_URLS = 64
CALL_BY_JSON = "function (json) { return (%s)(...JSON.parse(json)) }"
"""A call with arguments in JSON. The source of a function does not depend on its arguments."""
_WEB_SCHEMES = ("http:", "https:")
# Chromium's words for a script's document that is not there any more.
_CONTEXT_LOST = (
    "Inspected target navigated or closed",
    "Cannot find context with specified id",
    "Cannot find default execution context",
    "Could not find object with given id",
    "Execution context was destroyed",
)


class BrowserContext:
    """A set of tabs with cookies and storage of their own, in memory. `create()` makes one.

    Downloads, permissions and pop-ups are refused in it.
    """

    def __init__(self, connection: CdpConnection, context_id: str) -> None:
        self._connection = connection
        self._browser = connection.browser
        self.id = context_id  # as CDP's browserContextId
        self._browser.on("Target.targetCreated", self._close_popup)

    @classmethod
    async def create(
        cls, connection: CdpConnection, cookies: Sequence[Mapping[str, object]]
    ) -> BrowserContext:
        """Create a context that holds `cookies` (CDP's Network.CookieParam) before its first page.

        A failed or cancelled call leaves no context, at the latest when the connection ends.
        Raises `ProtocolError` if Chromium refuses a cookie, and as `CdpSession.call`.
        """
        browser = connection.browser
        answer = await _make(browser, "Target.createBrowserContext", {"disposeOnDetach": True})
        context = cls(connection, answer["browserContextId"])
        try:
            await context._set_up(cookies)
        except BaseException:
            context._stop_listening()
            browser.post("Target.disposeBrowserContext", {"browserContextId": context.id})
            raise
        return context

    async def new_page(self) -> Page:
        """Open a tab that shows `about:blank`. Leaves none when it fails or is cancelled.

        Raises as `CdpSession.call`.
        """
        answer = await _make(
            self._browser,
            "Target.createTarget",
            {"url": "about:blank", "browserContextId": self.id, "newWindow": True},
        )
        target_id = answer["targetId"]
        try:
            session = await self._connection.attach(target_id)
            page = Page(self._browser, session, target_id)
            await page._set_up()
        except BaseException:
            self._browser.post("Target.closeTarget", {"targetId": target_id})
            raise
        return page

    async def dispose(self) -> None:
        """Close the tabs and forget the cookies. Raises as `CdpSession.call`."""
        self._stop_listening()
        await self._browser.call("Target.disposeBrowserContext", {"browserContextId": self.id})

    async def _set_up(self, cookies: Sequence[Mapping[str, object]]) -> None:
        here = {"browserContextId": self.id}
        await self._browser.call(
            "Target.setDiscoverTargets", {"discover": True, "filter": [{"type": "page"}]}
        )
        await self._browser.call("Browser.setDownloadBehavior", {"behavior": "deny", **here})
        # Grants none, and by that denies all others.
        await self._browser.call("Browser.grantPermissions", {"permissions": [], **here})
        if cookies:
            await self._browser.call("Storage.setCookies", {"cookies": list(cookies), **here})

    def _close_popup(self, params: JsonObject) -> None:
        # A pop-up has an opener; a tab of ours has none.
        target = params.get("targetInfo", {})
        if target.get("browserContextId") == self.id and target.get("openerId"):
            logger.info("a pop-up was closed")
            self._browser.post("Target.closeTarget", {"targetId": target["targetId"]})

    def _stop_listening(self) -> None:
        self._browser.off("Target.targetCreated", self._close_popup)


class Page:
    """One tab. `BrowserContext.new_page()` opens one.

    Dialogs are dismissed as they open. Every call but `close` has a deadline, and raises `PageGone`
    at once when the tab crashes or closes, or the browser ends.
    """

    def __init__(self, browser: CdpSession, session: CdpSession, target_id: str) -> None:
        self._browser = browser
        self.session = session
        """The CDP session of the tab, for what this class has no method for."""
        self.target_id = target_id
        """The id of its CDP target, which is also that of its main frame."""
        self._url = "about:blank"
        self.document_count = 0
        """The number of documents that it has shown, the browser's error pages included."""
        self._other_urls: dict[str, None] = {}  # an ordered set
        self._url_listener: UrlListener | None = None
        self._global_id: str | None = None  # the global object of the present document

    @property
    def is_gone(self) -> bool:
        """True if the tab crashed or was closed, or its browser has ended: every call raises."""
        return self.session.gone is not None

    @property
    def other_urls(self) -> Collection[str]:
        """The http and https URLs that frames of the present document have shown or set out for,
        and those of the pop-ups that it opened. Of very many, the last."""
        return self._other_urls.keys()

    def set_url_listener(self, listener: UrlListener) -> None:
        """Have `listener` called with each URL as the tab shows it. It must not wait."""
        self._url_listener = listener

    async def goto(self, url: str, *, deadline: float = NAVIGATION_DEADLINE) -> str:
        """Load `url`, wait for DOMContentLoaded, and return the URL where that happened.

        Redirects are followed, also those by script before that event. An HTTP error is a page like
        any other. `deadline` is in seconds. Raises `NavigationFailed` if there is no page to show,
        or none in time.
        """
        steps = {"Page.lifecycleEvent": self._own_steps}
        try:
            with (
                trio.fail_after(deadline),
                self.session.events(steps, size=NAVIGATION_EVENT_QUEUE) as events,
            ):
                answer = await self.session.call("Page.navigate", {"url": url}, deadline=math.inf)
                if answer.get("errorText"):
                    raise NavigationFailed(url, answer["errorText"])
                if "loaderId" not in answer:
                    return url  # another fragment of the document
                await self._wait_loaded(events, answer["loaderId"])
                return await self.url()
        except ProtocolError as refusal:
            raise NavigationFailed(url, refusal.reason) from None
        except trio.TooSlowError:
            raise NavigationFailed(url, f"it was not there within {deadline:g} s") from None

    async def url(self) -> str:
        """Return the tab's URL, also that of a page that hangs. Raises `PageGone`."""
        await trio.lowlevel.checkpoint()
        if self.session.gone is not None:
            raise await self.session.wait_gone()
        return self._url

    async def evaluate(
        self, function: str, *arguments: JsonValue, deadline: float = CALL_DEADLINE
    ) -> JsonValue:
        """Call a JavaScript function in the page and return its value; a promise is awaited.

        The function runs as if the user had just clicked.

        Args:
            function: its source, as "async (a, b) => …". Each different one stays in the renderer's
                memory for a while, so it should be a constant.
            deadline: in seconds.

        Raises:
            ScriptFailed: it threw, or its value is not for JSON.
            ContextLost: the page navigated before there was a value.
            CallTimedOut: the deadline has passed; the script may still be running.
        """
        until = trio.current_time() + deadline
        try:
            if self._global_id is None:
                # A page's script can replace what `globalThis` names, and cannot replace this.
                found = await self.session.call(
                    "Runtime.evaluate", {"expression": "this"}, deadline=deadline
                )
                self._global_id = found["result"]["objectId"]
            answer = await self.session.call(
                "Runtime.callFunctionOn",
                {
                    "functionDeclaration": CALL_BY_JSON % function,
                    "objectId": self._global_id,
                    # ASCII alone: CDP refuses half of a surrogate pair, and JSON.parse does not.
                    "arguments": [{"value": json.dumps(arguments)}],
                    "awaitPromise": True,
                    "returnByValue": True,
                    "userGesture": True,
                },
                deadline=max(0.0, until - trio.current_time()),
            )
        except ProtocolError as refusal:
            if any(words in refusal.reason for words in _CONTEXT_LOST):
                self._global_id = None
                raise ContextLost("the page went elsewhere while a script ran in it") from None
            raise ScriptFailed(
                f"the script's value was refused: {first_line(refusal.reason)}"
            ) from None
        if "exceptionDetails" in answer:
            raise ScriptFailed(f"the script failed: {_thrown_text(answer['exceptionDetails'])}")
        value = answer["result"]
        if "unserializableValue" in value:
            raise ScriptFailed(f"the script's value is {value['unserializableValue']}, not JSON")
        return cast(JsonValue, value.get("value"))

    def responses(
        self, *url_parts: str, method: str | None = "POST"
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[CapturedResponse]]:
        """Capture the answers to the page's own requests. See `capture`."""
        return capture(self.session, url_parts, method)

    async def close(self) -> None:
        """Close the tab and wait until it is closed, however long that takes.

        Raises as `CdpSession.call`.
        """
        await self._browser.call("Target.closeTarget", {"targetId": self.target_id})
        await self.session.wait_gone()

    async def _set_up(self) -> None:
        self.session.on("Page.javascriptDialogOpening", self._dismiss_dialog)
        self.session.on("Page.frameNavigated", self._handle_navigated)
        self.session.on("Page.navigatedWithinDocument", self._handle_moved)
        self.session.on("Page.frameRequestedNavigation", self._handle_frame_leaving)
        self.session.on("Page.frameStartedNavigating", self._handle_frame_leaving)
        self.session.on("Page.windowOpen", self._handle_popup)
        await self.session.call("Page.enable")
        await self.session.call("Inspector.enable")  # sends Inspector.targetCrashed
        await self.session.call("Network.enable", NETWORK_BUFFERS)
        await self.session.call("Page.setLifecycleEventsEnabled", {"enabled": True})

    def _dismiss_dialog(self, params: JsonObject) -> None:
        # Only the dialog that asks before the page is left is accepted.
        is_leaving = params.get("type") == "beforeunload"
        self.session.post("Page.handleJavaScriptDialog", {"accept": is_leaving})

    def _handle_navigated(self, params: JsonObject) -> None:
        # These events come in order with the answers to calls; Page.getNavigationHistory does not.
        frame = params.get("frame", {})
        if frame.get("id") != self.target_id:
            self._add_other_url(frame["url"])
            return
        self.document_count += 1
        self._global_id = None
        self._other_urls.clear()
        # A document that did not come has an unreachable URL, and the browser's own page instead.
        url = frame.get("unreachableUrl") or frame["url"] + frame.get("urlFragment", "")
        self._set_url(url)

    def _handle_moved(self, params: JsonObject) -> None:
        # Another fragment of the document, or history.pushState.
        if params.get("frameId") == self.target_id:
            self._set_url(params["url"])
        else:
            self._add_other_url(params["url"])

    def _handle_frame_leaving(self, params: JsonObject) -> None:
        # Where a frame in another process arrives is not reported, only where it sets out for.
        if params["frameId"] != self.target_id:
            self._add_other_url(params["url"])

    def _handle_popup(self, params: JsonObject) -> None:
        # Target.targetCreated, by which the pop-up is closed, comes without a URL.
        self._add_other_url(params["url"])

    def _add_other_url(self, url: str) -> None:
        if not url.startswith(_WEB_SCHEMES):
            return
        self._other_urls.pop(url, None)
        if len(self._other_urls) >= MAX_OTHER_URLS:
            del self._other_urls[next(iter(self._other_urls))]
        self._other_urls[url] = None
        if self._url_listener is not None:
            self._url_listener(url, True)

    def _set_url(self, url: str) -> None:
        self._url = url
        if self._url_listener is not None:
            self._url_listener(url, False)

    def _own_steps(self, params: JsonObject) -> tuple[JsonObject, ...]:
        return (params,) if params.get("frameId") == self.target_id else ()

    async def _wait_loaded(
        self, steps: trio.MemoryReceiveChannel[JsonObject], loader_id: str
    ) -> None:
        has_begun = False
        async for step in steps:
            # A redirect by script has another loader, and counts too.
            has_begun = has_begun or step.get("loaderId") == loader_id
            if has_begun and step.get("name") == "DOMContentLoaded":
                return
        raise await self.session.wait_gone()


async def _make(browser: CdpSession, method: str, params: Mapping[str, object]) -> JsonObject:
    """Call a method that makes something. A cancellation waits for its answer, which names that."""
    try:
        with trio.CancelScope(shield=True):
            answer = await browser.call(method, params)
    except BrowserFailed:
        await trio.lowlevel.checkpoint_if_cancelled()
        raise
    return answer


def _thrown_text(details: JsonObject) -> str:
    """Return the first line of what a script threw (Runtime.ExceptionDetails)."""
    exception = details.get("exception", {})
    thrown = exception.get("description") or exception.get("value") or details.get("text")
    return first_line(str(thrown))
