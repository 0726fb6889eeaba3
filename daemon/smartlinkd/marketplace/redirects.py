"""Where a page, or a call of it, is redirected to: a login, a human check, or something else.

A page cannot read that, and a call's answer is its redirect; and the page that a load ends at may
not come. But the browser tells of each request that is made on the way, and which of the two it is
makes all the difference for the account.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

import trio

from smartlinkd.browser.errors import BrowserFailed
from smartlinkd.marketplace.errors import PortalDown, SessionLost
from smartlinkd.marketplace.portal_page import Answer, PageResponse, PortalPage
from smartlinkd.marketplace.session import (
    NO_PERMISSION,
    PARTS_OF_SIGNS,
    Sign,
    raise_gravest,
    sign_of_url,
)
from smartlinkd.nurseries import background

LEADS_ON_WITHIN = 2.0
"""Seconds for a login's page to come, or to lead on."""

TOLD_WITHIN = 0.05
"""Seconds for what the browser has told of the way to be read, when there is no page to show."""

_REDIRECTS = range(300, 400)


async def arrive(page: PortalPage, url: str) -> None:
    """Load `url`. Raises the error of the sign that the way leads to, and as `PortalPage.goto`.

    A tab that shows a human check, where the portal's own script has led it, is not led away.
    A check counts as soon as the way leads to it, a login when the way ends there; both also where
    their page never comes. What else a page asks for on its way says nothing. For a page that comes
    with an error and nothing to show, some browsers show one of their own, and `goto` fails: then
    its status counts, `SessionLost` or `PortalDown`.
    """
    if sign_of_url(await page.url()) is Sign.HUMAN_CHECK:
        raise Sign.HUMAN_CHECK.error()
    way = _Way([url])
    try:
        async with (
            page.responses(urlsplit(url).path, method="GET") as hops,
            background(partial(_follow, hops, way)),
        ):
            ends = [await _load(page, url)]
    except BrowserFailed:
        ends = [way.urls[-1], await page.url()]
        if not any(map(sign_of_url, ends)):
            if way.status in NO_PERMISSION:
                raise SessionLost from None
            if way.status >= 400:
                raise PortalDown(f"its page came with HTTP {way.status}") from None
            raise
    raise_gravest(*map(sign_of_url, ends))


@dataclass
class _Way:
    """Where a load has led so far, and with which status its end has come (0: not yet)."""

    urls: list[str]
    status: int = 0


async def _load(page: PortalPage, url: str) -> str:
    try:
        return await page.goto(url)
    except BrowserFailed:
        await trio.sleep(TOLD_WITHIN)
        raise


async def _follow(hops: trio.MemoryReceiveChannel[PageResponse], way: _Way) -> None:
    """Add to the way where it leads. Raises for a check."""
    async for hop in hops:
        if hop.url != way.urls[-1]:
            continue
        if not hop.leads_to:
            way.status = hop.status
        else:
            way.urls.append(hop.leads_to)
            if sign_of_url(hop.leads_to) is Sign.HUMAN_CHECK:
                raise Sign.HUMAN_CHECK.error()


def detours_of(
    page: PortalPage,
) -> AbstractAsyncContextManager[trio.MemoryReceiveChannel[PageResponse]]:
    """What the page asks for on its way to a login or a human check, and some that is neither.

    A request that is never sent, since a page may not read what it leads to, is among them. After
    a 307 or a 308 it has the method of the call (RFC 9110, section 15.4).
    """
    return page.responses(*PARTS_OF_SIGNS, method=None)


async def seen_through(
    response: PageResponse, detours: trio.MemoryReceiveChannel[PageResponse]
) -> PageResponse:
    """`response`; if it is a redirect, with the URL that it leads to in the place of its own.

    A check counts as soon as the way leads to it, however long its page takes. A login counts when
    its page is there or takes its time: the way may go on to the check, which a login does not end.
    """
    if response.status not in _REDIRECTS or sign_of_url(response.url):
        return response
    hop, login = response, ""
    with trio.move_on_after(LEADS_ON_WITHIN):
        while True:
            signs = {sign_of_url(url): url for url in (hop.url, hop.leads_to)}
            if check := signs.get(Sign.HUMAN_CHECK):
                return _led_to(check, response)
            login = signs.get(Sign.LOST, login)
            if Sign.LOST in signs and hop.status not in _REDIRECTS:
                break
            hop = await detours.receive()
    return _led_to(login, response) if login else response


def _led_to(url: str, redirect: PageResponse) -> PageResponse:
    return Answer(redirect.status, url, redirect.mime_type, redirect.body)
