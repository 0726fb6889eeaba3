"""Links through the browser: what nobody wants any more by then does not reach the portal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest

from daemon.browser.contexts import Place
from daemon.conversion.through_browser import BrowserLinks
from daemon.marketplace.errors import HumanCheck
from daemon.marketplace.links import Product
from daemon.marketplace.markets import market
from daemon.vault.cookie import parse_cookie

COOKIE = parse_cookie("SPC_U=1001; SPC_EC=first")


class PlayedPage:
    """A page at the portal, whose form is ready; notes what it is told to do."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def goto(self, url: str) -> str:
        self.told.append("goto")
        return url

    async def evaluate(self, _function: str, what: str, *_: object) -> dict[str, object]:
        self.told.append(what)
        return {"url": "https://portal.test/", "status": 200, "form": "ready"}


class PlayedBrowser:
    """A browser that has to open its page first."""

    def __init__(self) -> None:
        self.page = PlayedPage()

    async def use(self, place: Place, job: Callable[[Any], Awaitable[object]]) -> object:
        page: Any = self.page
        await place.open_tab(page)
        return await job(page)


@pytest.mark.parametrize("method", ["form", "fetch"])
@pytest.mark.parametrize(("asked_before", "told"), [(0, []), (1, ["goto", "look"])])
async def test_nothing_is_sent_from_when_it_is_not_wanted_any_more(
    method: Literal["form", "fetch"], asked_before: int, told: list[str]
) -> None:
    browser: Any = PlayedBrowser()
    links = BrowserLinks(browser, market("vn"), method=method)
    answers: list[HumanCheck | None] = [None] * asked_before + [HumanCheck()]

    def wanted() -> None:
        if (check := answers.pop(0)) is not None:
            raise check

    with pytest.raises(HumanCheck):
        await links.create(COOKIE, [Product(7, 1)], (), wanted)
    assert browser.page.told == told
