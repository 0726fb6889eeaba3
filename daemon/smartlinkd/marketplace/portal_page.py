"""The protocol of a browser tab that the portal's adapter needs (`smartlinkd.browser.page.Page`).

So the adapter's rules can be tested on a tab of a few lines.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import trio
from pydantic import JsonValue


class PageResponse(Protocol):
    """The response to a request of the page. See `smartlinkd.browser.capture.CapturedResponse`."""

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
    def leads_to(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """A `PageResponse` that the adapter has made."""

    status: int
    url: str
    mime_type: str
    body: str
    lost: str = ""
    leads_to: str = ""


class PortalPage(Protocol):
    """One tab, signed in by its cookies. Every call may raise a `BrowserFailed`."""

    async def goto(self, url: str) -> str:
        """Load `url` up to its DOM, and return the URL where that ended."""

    async def evaluate(
        self, function: str, *arguments: JsonValue, deadline: float = ...
    ) -> JsonValue:
        """Call a JavaScript function in the page and return its value; a promise is awaited.

        `deadline` is in seconds. Raises `ContextLost` if the page navigates meanwhile.
        """

    async def url(self) -> str:
        """Return the tab's URL, also that of a page that hangs."""

    @property
    def other_urls(self) -> Collection[str]:
        """The URLs that frames and pop-ups of the present document have shown or set out for."""

    def responses(
        self, *url_parts: str, method: str | None = "POST"
    ) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[PageResponse]]:
        """Capture the responses to requests that start in the block, with such a part in their URL.

        A redirect is a response of its own, without a body.
        """
