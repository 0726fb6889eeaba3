"""What a tab of the portal shows, and what of that is in the way.

The problem: where an answer is due, a login or a human check may come instead, in the page, in the
place of the page, or beside it in a frame or a window; and a page that says nothing may be on its
way, too busy to say it, or hung.

The choice: one look that tells all of this at once, and checks that raise what it means. A human
check wins over all else. What is beside the page, and where a page is that does not answer, is
known without asking it.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import trio

from smartlinkd.browser.errors import BrowserFailed, CallTimedOut, ContextLost
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.portal_page import Answer, PageResponse, PortalPage
from smartlinkd.marketplace.signs import (
    NO_PERMISSION,
    PARTS_OF_SIGNS,
    Sign,
    is_check_beside,
    raise_gravest,
    sign_of_json,
    sign_of_url,
)
from smartlinkd.marketplace.values import json_object, to_dict, to_int
from smartlinkd.nurseries import background

LOOK_EVERY: Final = 0.1
"""Seconds, as all of these."""
_LOOK_WITHIN = 2.0  # for a page to say what it shows; one that is too busy is asked again
_SETTLED_AFTER = 2.0  # for a page that went elsewhere to say where

FORM_SCRIPT: Final = files(__package__).joinpath("links_form.js").read_text("utf-8")
"""Looks at the links page, and submits its form (see the file)."""
_BROWSERS_OWN = "chrome-error:"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the tab shows: where it is, the page's HTTP status (0: unknown), its form, and the
    beginning of the JSON that came in the page's place. One that `hangs` shows nothing at the
    moment."""

    url: str = ""
    status: int = 0
    password: bool = False
    form: Literal["none", "disabled", "ready"] = "none"
    json: str = ""
    hangs: CallTimedOut | None = None


async def look(page: PortalPage, market: Market) -> Seen:
    """What it shows now. Raises `HumanCheck` for one beside the page, and what the URL means of a
    page that does not say it."""
    check_beside(page, market)
    try:
        seen = to_dict(await page.evaluate(FORM_SCRIPT, "look", [], [], 0, deadline=_LOOK_WITHIN))
    except ContextLost:
        return Seen()  # on its way to another page, which the next look will see
    except CallTimedOut as hangs:
        check_url(await page.url())  # a check's page may be too busy to be looked at
        return Seen(hangs=hangs)
    form, url = seen.get("form"), text_in(seen, "url")
    return Seen(
        # A page that did not come has another one of the browser's in its place.
        url=await page.url() if url.startswith(_BROWSERS_OWN) else url,
        status=to_int(seen.get("status")) or 0,
        password=seen.get("password") is True,
        form=form if form in ("disabled", "ready") else "none",
        json=text_in(seen, "json"),
    )


def check(seen: Seen) -> None:
    """Raise what the tab shows to be in the way, if anything."""
    # Before its status: risk control speaks with any.
    raise_gravest(sign_of_url(seen.url), sign_of_json(json_object(seen.json) or {}))
    if seen.status in NO_PERMISSION or (seen.password and seen.form == "none"):
        raise SessionLost
    if seen.status >= 500 or seen.status == 429:
        raise PortalDown(f"its page came with HTTP {seen.status}")


async def check_settled(page: PortalPage, market: Market) -> None:
    """As `check`, of a tab that may be on its way to another page."""
    seen = Seen()
    with trio.move_on_after(_SETTLED_AFTER):
        seen = await look(page, market)
        while not seen.url:
            await trio.sleep(LOOK_EVERY)
            seen = await look(page, market)
    check(seen if seen.url else Seen(url=await page.url()))


def check_beside(page: PortalPage, market: Market) -> None:
    """Raise `HumanCheck` for one that is shown in a frame, or in a window of its own. Known without
    asking the page."""
    if any(is_check_beside(url, market) for url in page.other_urls):
        raise HumanCheck


def check_url(url: str) -> None:
    """Raise what it means that the tab is there, if anything."""
    raise_gravest(sign_of_url(url))


def text_in(told: dict[str, Any], key: str) -> str:
    """A text in what a script of ours has told, or an empty one: the page's own scripts may have
    put anything in its place."""
    text = told.get(key)
    return text if isinstance(text, str) else ""


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
