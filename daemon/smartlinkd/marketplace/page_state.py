"""The state of a portal tab: its page, a login, or a human check in the way.

A login or a check may come in the page, in its place, in a frame or pop-up, or as the target of a
redirect; and a page that does not answer may be on its way, too busy, or hung. A human check wins
over all else. See docs/decisions/059-human-checks.md.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import trio

from smartlinkd.browser.capture import CapturedResponse
from smartlinkd.browser.errors import BrowserFailed, CallTimedOut, ContextLost
from smartlinkd.browser.page import Page
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.signs import (
    LOGIN_STATUSES,
    URL_PARTS_OF_SIGNS,
    Sign,
    is_check_in_frame,
    raise_gravest,
    sign_of_json,
    sign_of_url,
)
from smartlinkd.marketplace.values import json_object, to_dict, to_int
from smartlinkd.nurseries import background

# Seconds, all of these.
POLL_INTERVAL: Final = 0.1
_READ_TIMEOUT = 2.0  # for a page to tell its state; a busy one is asked again
_SETTLE_TIMEOUT = 2.0  # for a page that navigates to show where it arrives
LOGIN_TIMEOUT = 2.0  # for a login's page to come, or to redirect further
EVENTS_TIMEOUT = 0.05  # for the events of a load that failed to be read

_REDIRECTS = range(300, 400)

FORM_SCRIPT: Final = files(__package__).joinpath("links_form.js").read_text("utf-8")
"""Reads the state of the links page, and submits its form (see the file)."""
_ERROR_PAGE = "chrome-error:"


@dataclass(frozen=True, slots=True)
class PageState:
    """The state of a tab.

    Attributes:
        status: the page's HTTP status; 0 if it is unknown.
        has_password: True if the page asks for a password.
        form: the state of the links form.
        json: the beginning of a JSON document that came in the page's place.
        hang: the error of a page that does not answer; all else is empty then.
    """

    url: str = ""
    status: int = 0
    has_password: bool = False
    form: Literal["none", "disabled", "ready"] = "none"
    json: str = ""
    hang: CallTimedOut | None = None

    def check(self) -> None:
        """Raise `HumanCheck`, `SessionLost` or `PortalDown` if that is what the tab shows."""
        # Before the status: risk control answers with any.
        raise_gravest(sign_of_url(self.url), sign_of_json(json_object(self.json) or {}))
        if self.status in LOGIN_STATUSES or (self.has_password and self.form == "none"):
            raise SessionLost
        if self.status >= 500 or self.status == 429:
            raise PortalDown(f"its page came with HTTP {self.status}")


async def read_state(page: Page, market: Market) -> PageState:
    """Read what the tab shows now. A page that is navigating has an empty state.

    Raises `HumanCheck` for one in a frame or pop-up. Of a page that does not answer, raises what
    its URL means.
    """
    check_frames(page, market)
    try:
        read = to_dict(await page.evaluate(FORM_SCRIPT, "look", [], [], 0, deadline=_READ_TIMEOUT))
    except ContextLost:
        return PageState()
    except CallTimedOut as hang:
        check_url(await page.url())  # the page of a check may be too busy to answer
        return PageState(hang=hang)
    form, url = read.get("form"), text_in(read, "url")
    return PageState(
        # In the place of a page that did not come the browser shows one of its own.
        url=await page.url() if url.startswith(_ERROR_PAGE) else url,
        status=to_int(read.get("status")) or 0,
        has_password=read.get("password") is True,
        form=form if form in ("disabled", "ready") else "none",
        json=text_in(read, "json"),
    )


async def check_settled(page: Page, market: Market) -> None:
    """Raise as `PageState.check`, of a tab that may be navigating."""
    state = PageState()
    with trio.move_on_after(_SETTLE_TIMEOUT):
        state = await read_state(page, market)
        while not state.url:
            await trio.sleep(POLL_INTERVAL)
            state = await read_state(page, market)
    (state if state.url else PageState(url=await page.url())).check()


def check_frames(page: Page, market: Market) -> None:
    """Raise `HumanCheck` if a frame or pop-up has shown one. The page itself is not asked."""
    if any(is_check_in_frame(url, market) for url in page.other_urls):
        raise HumanCheck


def check_url(url: str) -> None:
    """Raise `HumanCheck` or `SessionLost` if the URL is a check's or a login's."""
    raise_gravest(sign_of_url(url))


def text_in(result: dict[str, Any], key: str) -> str:
    """Return a text of a script's result, or "": the page's own scripts may have changed it."""
    text = result.get(key)
    return text if isinstance(text, str) else ""


# Loading a page


async def load(page: Page, url: str) -> None:
    """Load `url`. Raises the error of a login or check that the load leads to.

    A check counts as soon as a redirect leads to it, a login if the load ends there; both also if
    their page never comes. A tab that shows a check already is not led away from it.

    Raises:
        HumanCheck: the load led to a check.
        SessionLost: it ended at a login, or failed with HTTP 401 or 403.
        PortalDown: it failed with another HTTP error. An error that has a page raises nothing.
        BrowserFailed: it failed otherwise.
    """
    if sign_of_url(await page.url()) is HumanCheck:
        raise HumanCheck
    hops = _Hops([url])
    async with (
        page.responses(urlsplit(url).path, method="GET") as responses,
        background(partial(_follow, responses, hops)),
    ):
        try:
            end = await page.goto(url)
        except BrowserFailed:
            await trio.sleep(EVENTS_TIMEOUT)
            raise_gravest(sign_of_url(hops.urls[-1]), sign_of_url(await page.url()))
            if hops.status in LOGIN_STATUSES:
                raise SessionLost from None
            if hops.status >= 400:
                raise PortalDown(f"its page came with HTTP {hops.status}") from None
            raise
    check_url(end)  # out here, since a check that a redirect led to wins


@dataclass
class _Hops:
    """Where a load has led so far, and the status of its last response (0: none yet)."""

    urls: list[str]
    status: int = 0


async def _follow(responses: trio.MemoryReceiveChannel[CapturedResponse], hops: _Hops) -> None:
    async for response in responses:
        if response.url != hops.urls[-1]:
            continue
        if not response.leads_to:
            hops.status = response.status
        else:
            hops.urls.append(response.leads_to)
            if sign_of_url(response.leads_to) is HumanCheck:
                raise HumanCheck


# A call that is redirected


def sign_responses(
    page: Page,
) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[CapturedResponse]]:
    """Capture the responses of logins and human checks, and some others.

    A page may not read what its call is redirected to. After a 307 or a 308 the redirected request
    has the method of the call (RFC 9110, section 15.4).
    """
    return page.responses(*URL_PARTS_OF_SIGNS, method=None)


async def resolve_redirect(
    response: CapturedResponse, sign_responses: trio.MemoryReceiveChannel[CapturedResponse]
) -> CapturedResponse:
    """Return `response`; of a redirect to a login or check, with the URL of that.

    A check counts as soon as a redirect leads to it. A login counts when its page is there or takes
    its time: it may redirect to a check.
    """
    if response.status not in _REDIRECTS or sign_of_url(response.url):
        return response
    hop = response
    signs: dict[Sign | None, str] = {}
    with trio.move_on_after(LOGIN_TIMEOUT):
        while True:
            here = {sign_of_url(url): url for url in (hop.url, hop.leads_to)}
            signs |= here
            if HumanCheck in here or (SessionLost in here and hop.status not in _REDIRECTS):
                break
            hop = await sign_responses.receive()
    url = signs.get(HumanCheck) or signs.get(SessionLost) or response.url
    return replace(response, url=url)
