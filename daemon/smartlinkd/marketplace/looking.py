"""What a tab of the portal shows, and what of that is in the way.

The problem: where an answer is due, a login or a human check may come instead, in the page, in the
place of the page, or beside it in a frame or a window; and a page that says nothing may be on its
way, too busy to say it, or hung.

The choice: one look that tells all of this at once, and checks that raise what it means. A human
check wins over all else. What is beside the page, and where a page is that does not answer, is
known without asking it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

import trio

from smartlinkd.browser.errors import CallTimedOut, ContextLost
from smartlinkd.marketplace.errors import HumanCheck, PortalDown, SessionLost
from smartlinkd.marketplace.markets import Market
from smartlinkd.marketplace.portal_page import PortalPage
from smartlinkd.marketplace.session import (
    NO_PERMISSION,
    is_check_beside,
    raise_gravest,
    sign_of_json,
    sign_of_url,
)
from smartlinkd.marketplace.values import json_object, to_dict, to_int

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
