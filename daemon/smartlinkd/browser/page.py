"""Tabs: a `BrowserContext` holds an account's cookies, a `Page` is one tab in it.

    context = await BrowserContext.create(connection, cookies)
    page = await context.new_page()
    await page.goto("https://portal.example/")
    answer = await page.evaluate("async (path) => (await fetch(path)).status", "/api/x")

The problem: a page can wait for a click on "OK", open windows, start downloads, ask for the camera,
navigate away in the middle of a script, loop for ever, or crash. Whoever works with it wants one
answer or one error, in time.

The choices: a context shares nothing with another one and is kept in memory only; in it downloads,
permissions and pop-ups are refused. Where a page goes is told as it goes there, and where its
frames and pop-ups do. Dialogs are dismissed as they open. Every call has a deadline of its own, in
seconds. Scripts are functions that get their arguments as JSON beside them: nothing is ever spliced
into source. What is awaited on a page that crashes, closes or loses its browser fails at once with
`PageGone` (see `smartlinkd/browser/errors.py` for that and the other errors).

Pages are not reloaded or revived here. A page that raised `PageGone` or `CallTimedOut` is to be
closed, which works for one in an endless loop too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, cast

import trio
from pydantic import JsonValue

from smartlinkd.browser.capture import Response, capture
from smartlinkd.browser.cdp import CALL_DEADLINE, Connection, Event, Events, JsonObject, Session
from smartlinkd.browser.errors import (
    CallTimedOut,
    ContextLost,
    NavigationFailed,
    PageGone,
    ProtocolError,
    ScriptFailed,
)
from smartlinkd.untrusted import first_line

logger = logging.getLogger(__name__)

Argument: TypeAlias = (
    "bool | int | float | str | Sequence[Argument] | Mapping[str, Argument] | None"
)
"""What a script can be given: whatever JSON can hold."""

Watch = Callable[[str, bool], None]
"""Called with a URL that a tab shows, and whether it is only beside its document: in a frame of it,
which may be on its way there yet, or in a pop-up."""

# A page of the portal takes two or three seconds to load; a slow line several times that.
NAVIGATION_DEADLINE = 30.0
# Frames tell some ten events each while a page loads.
ARRIVAL_BEHIND = 1024
MOST_BESIDE = 64
"""URLs of frames and pop-ups that are known of a document: of more, the last."""
_OF_THE_WEB = ("http:", "https:")
_LEADS = " leads"  # behind a frame's id: where it is on its way to
_ARRIVAL = ("Page.lifecycleEvent", "Page.navigatedWithinDocument")
# Chromium's words for "the document that this was about is not there any more".
_CONTEXT_LOST = (
    "Inspected target navigated or closed",
    "Cannot find context with specified id",
    "Cannot find default execution context",
    "Could not find object with given id",
    "Execution context was destroyed",
)


class BrowserContext:
    """A set of tabs with cookies and storage of their own, in memory only. `create()` makes one."""

    def __init__(self, connection: Connection, context_id: str) -> None:
        self._connection = connection
        self._browser = connection.browser
        self._id = context_id
        self._browser.on("Target.targetCreated", self._close_popup)

    @classmethod
    async def create(
        cls, connection: Connection, cookies: Sequence[Mapping[str, object]]
    ) -> BrowserContext:
        """A new context that holds `cookies` (CDP's Network.CookieParam) before any page of it
        exists.

        Raises ProtocolError, and leaves no context, when Chromium takes one of the cookies for
        invalid. When the caller goes away meanwhile the context is disposed of, at the latest when
        the connection ends.
        """
        context = await cls.bare(connection)
        try:
            await context._set_up(cookies)
        except BaseException:
            context._forget()
            connection.browser.post(
                "Target.disposeBrowserContext", {"browserContextId": context._id}
            )
            raise
        return context

    @classmethod
    async def bare(cls, connection: Connection) -> BrowserContext:
        """A new context for a page of our own, which shows nobody else's: nothing is denied in it.

        That takes a new browser a while, the first time. Of a caller that goes away, as above.
        """
        browser = connection.browser
        answer = await browser.call(
            "Target.createBrowserContext",
            {"disposeOnDetach": True},
            undo=lambda late: browser.post("Target.disposeBrowserContext", _context(late)),
        )
        return cls(connection, _context(answer)["browserContextId"])

    async def new_page(self, *, size: tuple[int, int] | None = None) -> Page:
        """A new tab, showing `about:blank`. Leaves none when it fails or is cancelled.

        `size` is its width and height, where it is not to be the browser's own. What a tab shows is
        drawn also when nobody looks, and takes memory by its size. The headless shell heeds it, the
        full browser does not.
        """
        window = {} if size is None else dict(zip(("width", "height"), size, strict=True))
        answer = await self._browser.call(
            "Target.createTarget",
            {"url": "about:blank", "browserContextId": self._id, "newWindow": True, **window},
            undo=lambda late: self._browser.post("Target.closeTarget", _target(late)),
        )
        try:
            session = await self._connection.attach(answer["targetId"])
            page = Page(self._browser, session, answer["targetId"])
            await page._set_up()
        except BaseException:
            self._browser.post("Target.closeTarget", _target(answer))
            raise
        return page

    async def dispose(self) -> None:
        """Close its tabs and forget its cookies. Nothing to do when the browser has gone."""
        self._forget()
        try:
            await self._browser.call("Target.disposeBrowserContext", {"browserContextId": self._id})
        except PageGone:
            return

    async def _set_up(self, cookies: Sequence[Mapping[str, object]]) -> None:
        here = {"browserContextId": self._id}
        await self._browser.call(
            "Target.setDiscoverTargets", {"discover": True, "filter": [{"type": "page"}]}
        )
        await self._browser.call("Browser.setDownloadBehavior", {"behavior": "deny", **here})
        # Grants none, and by that denies what is not granted.
        await self._browser.call("Browser.grantPermissions", {"permissions": [], **here})
        if cookies:
            await self._browser.call("Storage.setCookies", {"cookies": list(cookies), **here})

    def _close_popup(self, params: JsonObject) -> None:
        """Close what a page has opened. Ours have no opener."""
        target = params.get("targetInfo", {})
        if target.get("browserContextId") == self._id and target.get("openerId"):
            logger.info("a pop-up was closed")
            self._browser.post("Target.closeTarget", _target(target))

    def _forget(self) -> None:
        self._browser.off("Target.targetCreated", self._close_popup)


class Page:
    """One tab. `BrowserContext.new_page()` makes one."""

    def __init__(self, browser: Session, session: Session, target_id: str) -> None:
        self._browser = browser
        self._session = session
        self._target_id = target_id  # which is its main frame's id too
        self._url = "about:blank"
        self._documents = 0  # that it has shown
        self._beside: dict[str, str] = {}  # by the frame's id, or its own for a pop-up's
        self._watch: Watch | None = None
        self._global: str | None = None  # the id of the last one's global object, once asked for

    @property
    def gone(self) -> bool:
        """It crashed, was closed, or its browser has ended: every call raises."""
        return self._session.gone is not None

    @property
    def last_url(self) -> str:
        """Where it is, or was when it ended."""
        return self._url

    @property
    def beside(self) -> Collection[str]:
        """The URLs of its document's frames, those in frames included, also of where they are on
        their way to, and of the pop-ups that the document wanted to open: none of these is the
        tab's own, and a pop-up is closed unseen. Of http and https only."""
        return self._beside.values()

    @property
    def documents(self) -> int:
        """How many it has shown: each load is one, whoever asked for it, and a page of the
        browser's own in the place of one that did not come."""
        return self._documents

    def watch(self, watch: Watch) -> None:
        """Have `watch` told each URL from now on, as it is shown. It must not wait."""
        self._watch = watch

    async def goto(self, url: str, *, deadline: float = NAVIGATION_DEADLINE) -> str:
        """Load `url` and wait for DOMContentLoaded. Returns the URL it ended at.

        Redirects are followed, also those by script before that event; the new page's event counts
        then. An HTTP error is a page like another. Raises NavigationFailed when there is no page
        to show, or none in time.
        """
        try:
            with (
                trio.fail_after(deadline),
                self._session.events(*_ARRIVAL, behind=ARRIVAL_BEHIND) as events,
            ):
                answer = await self._session.call("Page.navigate", {"url": url}, deadline=math.inf)
                if answer.get("errorText"):
                    raise NavigationFailed(url, answer["errorText"])
                await self._arrival(events, answer.get("loaderId"))
                return await self.url()
        except ProtocolError as refusal:
            raise NavigationFailed(url, refusal.reason) from None
        except trio.TooSlowError:
            raise NavigationFailed(url, f"it was not there within {deadline:g} s") from None

    async def url(self) -> str:
        """Where it is now. Known without asking, so also of a page that hangs."""
        await trio.lowlevel.checkpoint()
        if self._session.gone is not None:
            raise await self._session.wait_gone()
        return self._url

    async def evaluate(
        self, function: str, *arguments: Argument, deadline: float = CALL_DEADLINE
    ) -> JsonValue:
        """Call a JavaScript function in the page and return its value; a promise is awaited.

        `function` is its source, as "async (a, b) => …". It runs as if the user had just clicked.
        Raises ScriptFailed when it throws or its value is not for JSON, ContextLost when the page
        navigated before there was a value, CallTimedOut; the script may be running on then.
        """
        until = trio.current_time() + deadline
        object_id = self._global or await self._find_global(deadline)
        left = until - trio.current_time()
        if left <= 0:  # that was answered in time, but this is a busy program
            raise CallTimedOut("Runtime.callFunctionOn", deadline)
        try:
            value = await self._call_script(
                "Runtime.callFunctionOn",
                {
                    "functionDeclaration": function,
                    "objectId": object_id,
                    "arguments": [{"value": argument} for argument in arguments],
                    "awaitPromise": True,
                    "returnByValue": True,
                    "userGesture": True,
                },
                left,
            )
        except ContextLost:
            self._global = None
            raise
        if "unserializableValue" in value:
            raise ScriptFailed(f"the script's value is {value['unserializableValue']}, not JSON")
        return cast(JsonValue, value.get("value"))

    def responses(
        self, *url_parts: str, method: str | None = "POST"
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[Response]]:
        """The answers to the page's requests of `method` (None: of any) with one of `url_parts` in
        their URL.

        See `browser/capture.py`: every request that starts in the block is answered by one
        `Response`, and PageGone leaves the block when the page ends.
        """
        return capture(self._session, url_parts, method)

    async def close(self) -> None:
        """Close the tab and wait until it is. Fine for one that has gone, loops or hangs."""
        try:
            await self._browser.call("Target.closeTarget", {"targetId": self._target_id})
        except PageGone:
            return
        except ProtocolError:
            if self._session.gone is None:
                raise
            return  # closed before
        with trio.move_on_after(CALL_DEADLINE) as patience:
            await self._session.wait_gone()
        if patience.cancelled_caught:
            raise CallTimedOut("Target.closeTarget", CALL_DEADLINE)

    async def _set_up(self) -> None:
        self._session.on("Page.javascriptDialogOpening", self._dismiss)
        self._session.on("Page.frameNavigated", self._navigated)
        self._session.on("Page.navigatedWithinDocument", self._moved)
        self._session.on("Page.frameDetached", self._detached)
        self._session.on("Page.frameRequestedNavigation", self._leads)
        self._session.on("Page.frameStartedNavigating", self._leads)
        self._session.on("Page.windowOpen", self._opens)
        await self._session.call("Page.enable")
        await self._session.call("Inspector.enable")  # tells of crashes
        await self._session.call("Page.setLifecycleEventsEnabled", {"enabled": True})

    def _dismiss(self, params: JsonObject) -> None:
        """Cancel a dialog. Only the one that asks whether to leave the page is agreed to."""
        leaving = params.get("type") == "beforeunload"
        self._session.post("Page.handleJavaScriptDialog", {"accept": leaving})

    def _navigated(self, told: JsonObject) -> None:
        """Another document. These events come in order with answers, the history does not."""
        frame = told.get("frame", {})
        if frame.get("id") != self._target_id:
            self._beside.pop(frame["id"] + _LEADS, None)
            self._note_beside(frame["id"], frame["url"])
        else:
            self._documents += 1
            self._global = None
            self._beside.clear()
            # Of one that did not come it is the first of these, and the other one the browser's.
            self._show(frame.get("unreachableUrl") or frame["url"] + frame.get("urlFragment", ""))

    def _moved(self, told: JsonObject) -> None:
        """Another fragment of the document, or what its script calls another address."""
        if told.get("frameId") == self._target_id:
            self._show(told["url"])
        else:
            self._note_beside(told["frameId"], told["url"])

    def _leads(self, told: JsonObject) -> None:
        """A frame is on its way, and shows until then what it did. Where one has come to is not
        told of another process's."""
        if told["frameId"] != self._target_id and told["url"].startswith(_OF_THE_WEB):
            self._note_beside(told["frameId"] + _LEADS, told["url"])

    def _detached(self, told: JsonObject) -> None:
        if told.get("reason") != "swap":  # it is in another process from now on
            self._beside.pop(told["frameId"], None)
            self._beside.pop(told["frameId"] + _LEADS, None)

    def _opens(self, told: JsonObject) -> None:
        """A pop-up. What is told of its target, by which it is closed, is without its URL."""
        self._note_beside(told["url"], told["url"])

    def _note_beside(self, key: str, url: str) -> None:
        self._beside.pop(key, None)
        if url.startswith(_OF_THE_WEB):
            if len(self._beside) >= MOST_BESIDE:
                del self._beside[next(iter(self._beside))]
            self._beside[key] = url
            if self._watch is not None:
                self._watch(url, True)

    def _show(self, url: str) -> None:
        self._url = url
        if self._watch is not None:
            self._watch(url, False)

    async def _arrival(self, events: Events[Event], loader_id: str | None) -> None:
        """Wait for the end of a navigation. Without a loader it is one within the document."""
        begun = False
        async for event in events:
            method, told = event
            if told.get("frameId") != self._target_id:
                continue
            if loader_id is None:
                if method == "Page.navigatedWithinDocument":
                    return
            elif method == "Page.lifecycleEvent":
                begun = begun or told.get("loaderId") == loader_id
                if begun and told.get("name") == "DOMContentLoaded":
                    return

    async def _find_global(self, deadline: float) -> str:
        """What functions are called on. It is the same for as long as the page shows a document,
        and so is asked for once in that time; it goes with the document.
        """
        asked_of = self._documents
        # No script of the page's can replace this, as it can what `globalThis` names.
        answer = await self._call_script("Runtime.evaluate", {"expression": "this"}, deadline)
        object_id = cast(str, answer["objectId"])
        # Another document may have come since the question, and it may be this one's answer or not.
        if asked_of == self._documents:
            self._global = object_id
        return object_id

    async def _call_script(
        self, method: str, params: Mapping[str, object], deadline: float
    ) -> JsonObject:
        """Call a method of Runtime. Returns the RemoteObject that is its result."""
        try:
            answer = await self._session.call(method, params, deadline=deadline)
        except ProtocolError as refusal:
            if any(words in refusal.reason for words in _CONTEXT_LOST):
                raise ContextLost("the page went elsewhere while a script ran in it") from None
            raise ScriptFailed(
                f"the script's value was refused: {first_line(refusal.reason)}"
            ) from None
        if "exceptionDetails" in answer:
            raise ScriptFailed(f"the script failed: {_thrown(answer['exceptionDetails'])}")
        return cast(JsonObject, answer["result"])


def _context(answer: JsonObject) -> dict[str, str]:
    return {"browserContextId": answer["browserContextId"]}


def _target(answer: JsonObject) -> dict[str, str]:
    return {"targetId": answer["targetId"]}


def _thrown(details: JsonObject) -> str:
    """What a script threw, as far as an error may hold it."""
    exception = details.get("exception", {})
    thrown = exception.get("description") or exception.get("value") or details.get("text")
    return first_line(str(thrown))
