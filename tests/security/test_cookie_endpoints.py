"""Web pages in the owner's browser neither read nor replace the cookie.

They call from the owner's own address. `tests/api/test_client_address.py` tests the rules, header
by header. Here a real browser decides what it sends and what a page may read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from pydantic import JsonValue

from smartlinkd.browser.cdp import connect
from smartlinkd.browser.chromium import LaunchSettings, launch
from smartlinkd.browser.page import BrowserContext, Page

if TYPE_CHECKING:
    from tests.security.conftest import Daemon, Start

pytestmark = pytest.mark.chromium

OWNERS = "SPC_U=4711; SPC_EC=the-session-of-the-owner"
ATTACKERS = "SPC_U=666; SPC_EC=planted-by-a-page"
PATHS = ("/api/sync-cookie", "/api/sync-cookie-local")
BODY = f'{{"cookie": "{ATTACKERS}"}}'
PLANT: JsonValue = {
    "method": "POST",
    "headers": {"Content-Type": "application/json"},
    "body": BODY,
}

READ = """
async (url, how) => {
  try {
    const answer = await fetch(url, how);
    return [answer.type, answer.status, await answer.text()];
  } catch (error) { return [error.name, 0, ""] }
}
"""
READ_BY_ELEMENT = """
async (url, kind) => {
  const made = document.createElement(kind);
  const over = new Promise((done) => { made.onload = made.onerror = done });
  made[kind === "object" ? "data" : kind === "link" ? "href" : "src"] = url;
  if (kind === "link") made.rel = "stylesheet";
  document.documentElement.append(made);
  await over;
  try { return made.contentDocument ? made.contentDocument.documentElement.innerText : "" }
  catch (error) { return error.name }
}
"""
SUBMIT = """
async (url, enctype, name, value) => {
  const frame = document.createElement("iframe");
  frame.name = "answer";
  const form = document.createElement("form");
  Object.assign(form, {action: url, method: "POST", enctype, target: "answer"});
  const field = document.createElement("input");
  Object.assign(field, {name, value});
  form.append(field);
  document.documentElement.append(frame, form);  // an empty frame has loaded with that
  const answered = new Promise((done) => { frame.onload = done });
  form.submit();
  await answered;
  frame.remove();
  form.remove();
}
"""


@pytest.fixture(scope="module")
def daemon(start: Start) -> Iterator[Daemon]:
    """A daemon with default settings: loopback addresses need no token."""
    with start() as daemon:
        yield daemon


@pytest.fixture
async def page(daemon: Daemon) -> AsyncIterator[Page]:
    """A tab of a browser like the owner's, without blocked ports."""
    answer = await daemon.ask("POST", PATHS[0], {"cookie": OWNERS})
    assert answer.status_code == 200, answer.text
    async with launch(LaunchSettings()) as chromium, connect(chromium.endpoint) as connection:
        yield await (await BrowserContext.create(connection, ())).new_page()


async def stored(daemon: Daemon) -> str:
    return str((await daemon.ask("GET", PATHS[0])).json()["cookie"])


async def request_count(daemon: Daemon, path: str) -> float:
    """Return the number of requests to a path so far, with any answer."""
    counted = f'smartlinkd_requests_total{{route="{path}",'
    metrics = await daemon.metrics()
    return sum(count for name, count in metrics.items() if name.startswith(counted))


async def serve_empty_page(stream: trio.SocketStream) -> None:
    """A web server of a stranger that answers each request with an empty page."""
    async with stream:
        await stream.receive_some(65536)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
        await stream.send_all(head + b"Content-Length: 6\r\n\r\n<body>")


@pytest.fixture
async def strangers_page(nursery: trio.Nursery) -> AsyncIterator[str]:
    """The address of a stranger's page."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(partial(trio.serve_listeners, serve_empty_page, listeners))
    yield f"http://page-of-a-stranger.localhost:{listeners[0].socket.getsockname()[1]}/"
    nursery.cancel_scope.cancel()


async def test_page_of_the_daemon_reads_and_writes_the_cookie(daemon: Daemon, page: Page) -> None:
    """The daemon's own page may use the cookie; so in the other tests the origin is refused."""
    await page.goto(f"{daemon.url}/docs")
    read: Any = await page.evaluate(READ, PATHS[0], {})
    assert read[:2] == ["basic", 200]
    assert OWNERS in read[2]
    await page.evaluate(READ, PATHS[0], PLANT)
    assert await stored(daemon) == ATTACKERS


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_page_of_another_origin_reads_and_writes_nothing(
    daemon: Daemon, page: Page, strangers_page: str, name: str
) -> None:
    await page.goto(strangers_page)
    ways: list[Any] = [
        {},
        {"mode": "no-cors"},
        {"credentials": "include"},
        {"method": "HEAD", "mode": "no-cors"},
        # "Simple" requests, which a browser sends without a preflight.
        {"method": "POST", "mode": "no-cors", "body": BODY},
        {"method": "POST", "body": BODY, "headers": {"Content-Type": "text/plain"}},
        # Requests with a preflight.
        PLANT,
        {"method": "PUT", "body": BODY},
        {"headers": {"X-Forwarded-For": "127.0.0.1"}},
    ]
    for path in PATHS:
        url = f"http://{name}:{daemon.port}{path}"
        for how in ways:
            # The page may not read an opaque answer.
            seen = ["opaque", 0, ""] if how.get("mode") == "no-cors" else ["TypeError", 0, ""]
            assert await page.evaluate(READ, url, how) == seen, how
        for kind in ("script", "img", "iframe", "object", "link"):
            assert await page.evaluate(READ_BY_ELEMENT, url, kind) in ("", "SecurityError")
        before = await request_count(daemon, path)
        await page.evaluate(SUBMIT, url, "text/plain", f'{BODY[:-1]}, "x": "', '"}')
        await page.evaluate(SUBMIT, url, "application/x-www-form-urlencoded", "cookie", ATTACKERS)
        await page.evaluate(SUBMIT, url, "multipart/form-data", "cookie", ATTACKERS)
        assert await request_count(daemon, path) == before + 3
    assert await stored(daemon) == OWNERS


async def test_page_whose_name_is_rebound_reads_and_writes_nothing(
    daemon: Daemon, page: Page
) -> None:
    """DNS rebinding: for the browser the daemon has the page's own origin, so it may read answers.

    A browser resolves all names below `localhost` to loopback, like a stranger's rebound name.
    """
    await page.goto(f"http://rebound.localhost:{daemon.port}/docs")
    assert (await page.url()).startswith("http://rebound.localhost")
    for path in PATHS:
        for how in ({}, PLANT) if path == PATHS[0] else (PLANT,):
            read: Any = await page.evaluate(READ, path, how)
            assert read[:2] == ["basic", 403], read
            assert "SPC_" not in read[2]
    assert await stored(daemon) == OWNERS
