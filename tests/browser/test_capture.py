"""What a page's requests are answered, on a real Chromium."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from smartlinkd.browser.capture import BODY_LIMIT, CapturedResponse
from smartlinkd.browser.errors import SessionGone
from smartlinkd.browser.page import Page

pytestmark = pytest.mark.chromium

POST = "async (url) => { const r = await fetch(url, {method: 'POST'}); return r.status }"
TRY_POST = "async (url) => { try { await (await fetch(url, {method: 'POST'})).text() } catch {} }"


async def captured(page: Page, do: Callable[[], Awaitable[object]]) -> CapturedResponse:
    """What the page's first POST to something with /api/ in it was answered."""
    async with page.responses("/api/") as responses:
        await do()
        with trio.fail_after(5):
            return await responses.receive()


async def test_answers_to_a_pages_requests_are_captured(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    json = {"Content-Type": "application/json"}
    wanted = site.put("/api/x", '{"a": "ế"}', status=403, headers=json)
    unwanted = site.put("/other", "x")

    async def requests() -> None:
        await page.evaluate("async (url) => { await fetch(url) }", wanted)  # a GET
        await page.evaluate(POST, unwanted)
        await page.evaluate(POST, f"{wanted}?q=1")

    response = await captured(page, requests)
    assert response == CapturedResponse(403, f"{wanted}?q=1", "application/json", '{"a": "ế"}')
    assert "q=1" not in repr(response)


async def test_the_browser_is_asked_once_to_tell_of_requests(
    page: Page, site: Any, calls: list[str]
) -> None:
    for host in ("127.0.0.1", "localhost"):  # another site, and so another process
        here = site.put("/here").replace("127.0.0.1", host)
        await page.goto(here)
        wanted = site.put("/api/x", host).replace("127.0.0.1", host)
        response = await captured(page, partial(page.evaluate, POST, wanted))
        assert response.body == host
    assert calls.count("Network.enable") == 1


async def test_a_redirect_is_an_answer_before_there_is_one_to_where_it_leads(
    page: Page, site: Any
) -> None:
    await page.goto(site.put("/here"))
    login = site.put("/login", wait=trio.Event())
    wanted = site.put("/api/x", status=302, headers={"Location": login})
    ask = "(url) => { fetch(url, {method: 'POST'}) }"
    response = await captured(page, lambda: page.evaluate(ask, wanted))
    assert response == CapturedResponse(302, wanted, "", "", leads_to=login)


async def test_request_without_an_answer_has_a_reason(
    page: Page, site: Any, closed_port: int
) -> None:
    await page.goto(site.put("/here"))
    wanted = f"http://127.0.0.1:{closed_port}/api/x"
    response = await captured(page, lambda: page.evaluate(TRY_POST, wanted))
    assert response == CapturedResponse(0, wanted, "", "", lost="net::ERR_CONNECTION_REFUSED")


async def test_answer_that_breaks_off_has_a_reason(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    wanted = site.put("/api/x", "short", headers={"Content-Length": "100"})
    response = await captured(page, lambda: page.evaluate(TRY_POST, wanted))
    assert (response.status, response.body) == (200, "")
    assert response.lost == "net::ERR_CONTENT_LENGTH_MISMATCH"


async def test_a_body_over_the_limit_is_not_kept(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    wanted = site.put("/api/x", "x" * (BODY_LIMIT + 1))
    response = await captured(page, lambda: page.evaluate(POST, wanted))
    assert (response.status, response.body) == (200, "")
    assert response.lost


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"], ids=["same site", "another site"])
async def test_answer_that_the_page_does_not_wait_for_is_captured(
    host: str, page: Page, site: Any
) -> None:
    await page.goto(site.put("/here"))
    wanted = site.put("/api/x", "x", wait=trio.Event())
    site.put("/there")

    async def leave() -> None:
        await page.evaluate("(url) => { fetch(url, {method: 'POST'}) }", wanted)
        await page.goto(site.url("/there", host=host))

    response = await captured(page, leave)
    assert (response.status, response.url, response.body) == (0, wanted, "")
    assert response.lost


async def test_capture_ends_with_the_page(page: Page) -> None:
    with trio.fail_after(5), pytest.raises(SessionGone):
        await captured(page, page.close)
