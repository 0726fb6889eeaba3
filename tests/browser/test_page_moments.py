"""Moments of a page that a real browser does not show on demand, with its side played by hand."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.browser.cdp import CdpConnection
from smartlinkd.browser.errors import PageGone
from smartlinkd.browser.page import MAX_OTHER_URLS, BrowserContext, Page
from tests.browser.test_cdp import Asker, ask

if TYPE_CHECKING:
    from tests.browser.conftest import Peer


async def show(peer: Peer, url: str) -> None:
    """Another document."""
    await peer.report("Page.frameNavigated", frame={"id": "T", "url": url})


async def lifecycle(peer: Peer, name: str, loader: str, frame: str = "T") -> None:
    await peer.report("Page.lifecycleEvent", frameId=frame, loaderId=loader, name=name)


@pytest.fixture
async def page(conversation: CdpConnection, peer: Any, nursery: trio.Nursery) -> Page:
    """A page on the target T. From here on each command is the test's to answer."""
    opening = await ask(nursery, BrowserContext(conversation, "1").new_page)
    await peer.answer({"targetId": "T"})
    command = await peer.take()
    told = {"sessionId": "S", "targetInfo": {"targetId": "T"}}
    await peer.say({"method": "Target.attachedToTarget", "params": told})
    await peer.say({"id": command["id"], "result": {"sessionId": "S"}})
    for _ in range(4):
        await peer.answer({})
    await opening.done.wait()
    assert isinstance(opening.result, Page)
    return opening.result


async def test_url_of_a_tab_that_ended_raises_page_gone(page: Page, peer: Any) -> None:
    """Whoever asks would take it for one that is still there."""
    await show(peer, "https://b.example/")
    assert await page.url() == "https://b.example/"
    await peer.report("Inspector.targetCrashed")
    with pytest.raises(PageGone):
        await page.url()


async def going(page: Page, peer: Any, nursery: trio.Nursery) -> Asker:
    """On its way to a document of the loader L."""
    asker = await ask(nursery, partial(page.goto, "https://b.example/"))
    await peer.answer({"frameId": "T", "loaderId": "L"})
    await wait_all_tasks_blocked()
    return asker


async def test_goto_waits_for_its_own_document_and_for_no_frame(
    page: Page, peer: Any, nursery: trio.Nursery
) -> None:
    asker = await going(page, peer, nursery)
    await lifecycle(peer, "DOMContentLoaded", "the one before")
    await show(peer, "https://b.example/")
    await lifecycle(peer, "init", "L")
    await lifecycle(peer, "DOMContentLoaded", "of a frame", frame="F")
    assert not asker.done.is_set()
    await lifecycle(peer, "DOMContentLoaded", "L")
    assert asker.result == "https://b.example/"


async def test_goto_in_a_tab_that_ends_raises_page_gone(
    page: Page, peer: Any, nursery: trio.Nursery
) -> None:
    asker = await going(page, peer, nursery)
    await peer.report("Inspector.targetCrashed")
    assert isinstance(asker.result, PageGone)


async def test_other_urls_are_the_last_seen_in_this_document(page: Page, peer: Any) -> None:
    async def show_frame(number: int) -> None:
        frame = {"id": f"F{number}", "parentId": "T", "url": f"https://portal.test/{number}"}
        await peer.report("Page.frameNavigated", frame=frame)

    for number in range(MAX_OTHER_URLS + 2):
        await show_frame(number)
    seen = [f"https://portal.test/{n}" for n in range(2, MAX_OTHER_URLS + 2)]
    assert list(page.other_urls) == seen
    await show_frame(2)
    assert list(page.other_urls) == [*seen[1:], seen[0]]
    assert page.document_count == 0
    await show(peer, "https://portal.test/next")
    assert list(page.other_urls) == []


@pytest.mark.parametrize("answered", [False, True])
async def test_tab_whose_caller_leaves_while_it_is_made_is_closed(
    conversation: CdpConnection, peer: Any, nursery: trio.Nursery, answered: bool
) -> None:
    """Not only with its context, on which somebody else may be at work."""
    scope = trio.CancelScope()

    async def new_page() -> None:
        with scope:
            await BrowserContext(conversation, "1").new_page()

    await ask(nursery, new_page)
    command = await peer.take()
    if not answered:
        scope.cancel()
        await wait_all_tasks_blocked()
    await peer.say({"id": command["id"], "result": {"targetId": "T"}})
    if answered:
        assert (await peer.take())["method"] == "Target.attachToTarget"
        scope.cancel()
    closing = await peer.take()
    assert (closing["method"], closing["params"]) == ("Target.closeTarget", {"targetId": "T"})


async def test_source_of_a_script_does_not_depend_on_its_arguments(
    page: Page, peer: Any, nursery: trio.Nursery
) -> None:
    """V8 keeps the sources of scripts that differ."""
    sources = set()
    for number in (1, 2):
        asker = await ask(nursery, partial(page.evaluate, "(n) => n", number))
        if number == 1:
            await peer.answer({"result": {"objectId": "global"}})
        command = await peer.take()
        sources.add(command["params"]["functionDeclaration"])
        await peer.say({"id": command["id"], "result": {"result": {"value": number}}})
        await asker.done.wait()
        assert asker.result == number
    assert len(sources) == 1
