"""Tabs of a real Chromium, on pages that do what pages do."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from pydantic import JsonValue

from smartlinkd.browser.cdp import CdpConnection
from smartlinkd.browser.errors import (
    ContextLost,
    NavigationFailed,
    ProtocolError,
    ScriptFailed,
)
from smartlinkd.browser.page import BrowserContext, Page

pytestmark = pytest.mark.chromium


async def pages_of(connection: CdpConnection) -> list[str]:
    targets = await connection.browser.call("Target.getTargets")
    return [target["targetId"] for target in targets["targetInfos"] if target["type"] == "page"]


async def test_goto_follows_redirects_and_returns_the_last_url(page: Page, site: Any) -> None:
    end = site.put("/end", "<p id=x>there</p>")
    by_script = site.put("/script", f"<script>location.replace('{end}?q=1#f')</script>")
    by_http = site.put("/http", status=302, headers={"Location": by_script})
    assert await page.goto(by_http) == f"{end}?q=1#f"
    assert await page.evaluate("() => document.getElementById('x').textContent") == "there"


async def test_goto_returns_for_any_kind_of_url_before_its_images_are_there(
    page: Page, site: Any
) -> None:
    here, failed = site.put("/here"), site.put("/error", "<p>sorry</p>", status=503)
    fragments = (f"{here}#a", f"{here}#b", f"{here}#b")
    loads_later = site.put("/later", f"<img src='{site.put('/image', wait=trio.Event())}'>")
    for url in (here, here, *fragments, "about:blank", "data:,x", here, failed, loads_later):
        with trio.fail_after(5):
            assert await page.goto(url) == url
            assert await page.evaluate("() => location.href") == url


async def test_url_is_where_script_went(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    await page.evaluate("() => { history.pushState(null, '', '/there?x=1#y') }")
    assert await page.url() == site.url("/there?x=1#y")


async def test_goto_that_fails_raises_without_the_query(
    page: Page, site: Any, closed_port: int
) -> None:
    with pytest.raises(NavigationFailed) as refused:
        await page.goto(f"http://127.0.0.1:{closed_port}/path?token=secret")
    assert str(refused.value) == (
        f"http://127.0.0.1:{closed_port}/path could not be loaded: net::ERR_CONNECTION_REFUSED"
    )
    download = site.put("/file", "x", headers={"Content-Disposition": "attachment"})
    with pytest.raises(NavigationFailed, match="net::ERR_ABORTED"):
        await page.goto(download)
    with pytest.raises(NavigationFailed, match="invalid URL"):
        await page.goto("nonsense")
    never = trio.Event()
    with pytest.raises(NavigationFailed, match=r"not there within 0\.2 s"):
        await page.goto(site.put("/slow", wait=never), deadline=0.2)


async def test_evaluate_passes_and_returns_json(page: Page) -> None:
    argument: JsonValue = {"quotes": "'\"`</script>${1}\u2028\\", "list": [1, 2.5, True, None, {}]}
    assert await page.evaluate("(a) => a", argument) == argument
    assert await page.evaluate("async (a, b) => { await null; return [b, a] }", 1, "x") == ["x", 1]
    assert await page.evaluate("() => undefined") is None
    assert await page.evaluate("(n) => 'x'.repeat(n)", 5_000_000) == "x" * 5_000_000


async def test_page_that_replaces_its_global_object_is_evaluated(page: Page) -> None:
    await page.goto("data:text/html,<script>globalThis = null</script>")
    assert await page.evaluate("() => 1 + 1") == 2


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("() => { throw new TypeError('first\\nsecond') }", r"TypeError: first$"),
        ("() => Promise.reject('a text')", "a text$"),
        ("async () => { throw {an: 'object'} }", "Object$"),
        ("() => NaN", "NaN"),
        ("() => 10n", "10n"),
        ("() => { const a = {}; a.a = a; return a }", "reference chain"),
        ("not a function (", "SyntaxError"),
    ],
    ids=["throws", "rejects", "object", "nan", "bigint", "cycle", "syntax"],
)
async def test_script_that_fails_raises_with_its_reason(
    function: str, said: str, page: Page
) -> None:
    with pytest.raises(ScriptFailed, match=said):
        await page.evaluate(function)
    assert await page.evaluate("() => 'fine'") == "fine"


async def test_navigation_during_a_script_raises_context_lost(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    there = site.put("/there")
    with pytest.raises(ContextLost):
        await page.evaluate("(url) => new Promise(() => { location.href = url })", there)
    with trio.fail_after(5):
        while await page.evaluate("() => location.pathname") != "/there":
            await trio.lowlevel.checkpoint()


async def test_dialogs_are_dismissed(page: Page) -> None:
    assert await page.evaluate("() => [alert('x'), confirm('x'), prompt('x')]") == [
        None,
        False,
        None,
    ]


async def test_page_that_asks_to_stay_is_left(page: Page, site: Any) -> None:
    await page.goto(site.put("/stay", "<script>onbeforeunload = () => 'stay'</script>"))
    await page.evaluate("() => document.body.click()")
    assert await page.goto(site.put("/next")) == site.url("/next")


async def test_pop_up_is_closed_at_once(connection: CdpConnection, page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    before = await pages_of(connection)
    await page.evaluate("(url) => { window.w = window.open(url) }", site.put("/pop-up"))
    with trio.fail_after(5):
        while not await page.evaluate("() => w === null || w.closed"):
            await trio.lowlevel.checkpoint()
    assert await pages_of(connection) == before


SHOW_FRAME = """(url) => new Promise((shown) => {
    const frame = document.createElement("iframe");
    Object.assign(frame, { src: url, onload: () => shown(true) });
    document.body.append(frame);
})"""


async def test_urls_of_frames_and_pop_ups_are_known_until_the_next_document(
    page: Page, site: Any
) -> None:
    inner = site.put("/inner")
    frame = site.put("/frame", f"<iframe src='{inner}'></iframe><iframe></iframe>")
    await page.goto(site.put("/here"))
    await page.evaluate(SHOW_FRAME, frame)
    assert sorted(page.other_urls) == [frame, inner]
    await page.evaluate("() => frames[0].history.pushState(null, '', '/moved')")
    assert sorted(page.other_urls) == [frame, inner, site.url("/moved")]
    for how in ("popup", "noopener"):
        await page.evaluate("(url, how) => { open(url, '_blank', how) }", site.url(f"/{how}"), how)
    assert {site.url("/popup"), site.url("/noopener")} < set(page.other_urls)
    await page.goto(site.put("/next"))
    assert list(page.other_urls) == []


async def test_url_of_a_frame_in_another_process_is_known(page: Page, site: Any) -> None:
    await page.goto(site.put("/here", headers={"Origin-Agent-Cluster": "?1"}))
    frame = site.url("/frame", host="localhost")
    await page.evaluate(SHOW_FRAME, frame)
    assert list(page.other_urls) == [frame]


async def test_permissions_are_denied(page: Page, site: Any) -> None:
    await page.goto(site.put("/here"))
    for name in ("geolocation", "notifications", "camera", "clipboard-read"):
        state = "async (name) => (await navigator.permissions.query({name})).state"
        assert await page.evaluate(state, name) == "denied"


async def test_tabs_share_the_cookies_of_their_own_context_only(
    connection: CdpConnection, site: Any
) -> None:
    cookie = {"name": "name", "value": "value", "url": site.url()}
    context = await BrowserContext.create(connection, [cookie])
    other = await BrowserContext.create(connection, [])
    for owner, seen in ((context, "name=value"), (context, "name=value"), (other, "")):
        page = await owner.new_page()
        await page.goto(site.put("/here"))
        look = "() => [document.cookie, document.visibilityState]"
        assert await page.evaluate(look) == [seen, "visible"]


@pytest.mark.parametrize(
    ("host", "cookie", "arrives_at"),
    [
        ("127.0.0.1", {}, {"127.0.0.1"}),
        ("shop.localhost", {}, {"shop.localhost"}),
        (
            "shop.localhost",
            {"domain": ".shop.localhost"},
            {"shop.localhost", "portal.shop.localhost"},
        ),
        ("127.0.0.1", {"name": "__Host-n", "secure": True}, {"127.0.0.1"}),
        ("shop.localhost", {"name": "__Host-n", "secure": True}, {"shop.localhost"}),
    ],
    ids=["address", "host", "domain", "__Host- address", "__Host- host"],
)
async def test_cookie_is_visible_at_its_own_hosts_from_the_first_page(
    host: str, cookie: dict[str, object], arrives_at: set[str], connection: CdpConnection, site: Any
) -> None:
    placed = {"name": "n", "value": "v", "url": site.url(host=host), "path": "/"}
    placed.update(cookie)
    page = await (await BrowserContext.create(connection, [placed])).new_page()
    visible_at, sent_to = set(), set()
    for target in ("127.0.0.1", "localhost", "shop.localhost", "portal.shop.localhost"):
        await page.goto(site.url(f"/{target}", host=target))
        if await page.evaluate("() => document.cookie") == f"{placed['name']}=v":
            visible_at.add(target)
    for request in site.requests:
        if request.headers.get("cookie") == f"{placed['name']}=v":
            sent_to.add(request.path.removeprefix("/"))
    assert visible_at == sent_to == arrives_at


async def test_cookie_that_chromium_refuses_leaves_no_context_and_is_not_shown(
    connection: CdpConnection, site: Any
) -> None:
    contexts = await connection.browser.call("Target.getBrowserContexts")
    bad = {"name": "n", "value": "secret;secret", "url": site.url()}
    with pytest.raises(ProtocolError, match="Invalid cookie fields") as refused:
        await BrowserContext.create(connection, [bad])
    assert "secret" not in str(refused.value)
    assert await connection.browser.call("Target.getBrowserContexts") == contexts
