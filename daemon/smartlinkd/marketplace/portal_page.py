"""The protocol of a browser tab that the portal's adapter needs (`smartlinkd.browser.page.Page`).

A protocol, so that the adapter's rules can be tested on a tab of a few lines, and so that nothing
of the marketplace hangs on how a tab is driven.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import trio
from pydantic import JsonValue


class PageResponse(Protocol):
    """An HTTP response that the page has received, or has not: then `lost` says why."""

    @property
    def status(self) -> int: ...

    @property
    def url(self) -> str: ...

    @property
    def mime_type(self) -> str: ...

    @property
    def body(self) -> str: ...

    @property
    def lost(self) -> str: ...

    @property
    def leads_to(self) -> str:
        """The URL that a redirect leads to, where that is known by the answer itself."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A `PageResponse` of our own making."""

    status: int
    url: str
    mime_type: str
    body: str
    lost: str = ""
    leads_to: str = ""


class PortalPage(Protocol):
    """One tab, signed in by its cookies. Every call may raise an `UpstreamFailed` of the browser's.

    Deadlines are in seconds.
    """

    async def goto(self, url: str) -> str:
        """Load `url` up to its DOM; returns where that ended."""

    async def evaluate(
        self, function: str, *arguments: JsonValue, deadline: float = ...
    ) -> JsonValue:
        """Call a JavaScript function in the page and return what it, or its promise, gives.

        Raises `smartlinkd.browser.errors.ContextLost` when the page goes elsewhere meanwhile.
        """

    async def url(self) -> str:
        """Where it is now. Known without asking it, so also of a page that hangs."""

    @property
    def other_urls(self) -> Collection[str]:
        """The URLs of its document's frames, of where these are on their way to, and of the windows
        that the document has opened."""

    def responses(
        self, *url_parts: str, method: str | None = "POST"
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[PageResponse]]:
        """The responses to requests that the page makes from now on with such a part in their URL.

        A redirect is a response of its own, without a body.
        """
