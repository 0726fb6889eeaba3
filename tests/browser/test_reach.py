"""The machine as pages reach it, and the browser as other programs reach it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.browser.chromium import LaunchSettings
from smartlinkd.browser.errors import NavigationFailed
from smartlinkd.browser.page import Page
from tests.browser.test_chromium import a_page, each_of_debians, launched, only_one

pytestmark = pytest.mark.chromium

NAMES = ("127.0.0.1", "localhost", "any.localhost", "[::1]", "127.1", "2130706433", "0.0.0.0")
"""How a page may call this machine. The third stands for a name of somebody's own that leads here
(DNS rebinding): a browser resolves it to loopback without asking anybody."""

TRY_EVERYTHING = """
async (url) => {
  const settled = (made) => new Promise((done) => {
    for (const event of ["load", "error", "open", "close", "message"]) made["on" + event] = done;
  });
  const element = (kind, attribute) => {
    const made = document.createElement(kind);
    const over = settled(made);
    made[attribute] = url;
    document.body.append(made);
    return over;
  };
  const form = document.createElement("form");
  const frame = document.createElement("iframe");
  frame.name = form.target = "answer";
  Object.assign(form, {method: "POST", action: url, enctype: "text/plain"});
  document.body.append(frame, form);
  form.submit();
  const script = `fetch(${JSON.stringify(url)}, {mode: "no-cors"}).finally(() => postMessage(1))`;
  const worker = new Worker(URL.createObjectURL(new Blob([script])));
  const post = {mode: "no-cors", method: "POST", body: "{}"};
  await Promise.allSettled([
    fetch(url), fetch(url, {mode: "no-cors"}), fetch(url, post),
    element("img", "src"), element("script", "src"), element("iframe", "src"), settled(worker),
    settled(new WebSocket(url.replace("http", "ws"))), settled(new EventSource(url)),
  ]);
  navigator.sendBeacon(url, "{}");
}
"""


@pytest.fixture
async def neighbour(nursery: trio.Nursery, site: Any) -> Any:
    """A second site, which stands for the daemon. It ends with the nursery, as the first does."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    made = type(site)(listeners[0].socket.getsockname()[1])
    nursery.start_soon(trio.serve_listeners, made.serve, listeners)
    return made


async def attack(page: Page, site: Any, neighbour: Any) -> None:
    await page.goto(site.put("/here", "<body>"))
    for name in NAMES:
        await page.evaluate(TRY_EVERYTHING, neighbour.url("/reached", host=name))


@each_of_debians
async def test_closed_port_is_reached_in_no_way(
    executable: Path, settings: LaunchSettings, site: Any, neighbour: Any
) -> None:
    closed = replace(settings, executable=executable, closed_ports=(neighbour.port, 65_000))
    async with launched(closed) as (_, connection):
        page = await a_page(connection)
        with trio.fail_after(20):
            await attack(page, site, neighbour)
        for name in NAMES:
            with pytest.raises(NavigationFailed, match="net::ERR_NAME_NOT_RESOLVED"):
                await page.goto(neighbour.url(host=name))
        assert await page.goto(site.url("/here")) == site.url("/here")  # others are open
    assert neighbour.requests == []


async def test_open_port_is_reached_in_each_way(page: Page, site: Any, neighbour: Any) -> None:
    """The attempts above fail because of the rule, and not by themselves."""
    with trio.fail_after(20):
        await attack(page, site, neighbour)
    hosts = {request.headers["host"].partition(":")[0] for request in neighbour.requests}
    assert hosts >= {"127.0.0.1", "localhost", "any.localhost"}
    kinds = {
        (request.method, request.headers.get("sec-fetch-dest", "websocket"))
        for request in neighbour.requests
    }
    assert kinds >= {
        ("GET", "empty"),
        ("GET", "image"),
        ("GET", "script"),
        ("GET", "iframe"),
        ("GET", "websocket"),
        ("POST", "empty"),
        ("POST", "iframe"),
    }


# The debugging port


def test_debugging_port_is_on_loopback_only(shared_endpoint: str) -> None:
    port = port_of(shared_endpoint)
    rows = [
        line.split()[1:4]
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    listening = [
        place for place, _, state in rows if state == "0A" and place.endswith(f":{port:04X}")
    ]
    assert listening == [f"0100007F:{port:04X}"]  # 127.0.0.1, in the kernel's order of bytes


async def test_debugging_port_is_closed_to_pages(
    shared_endpoint: str, page: Page, site: Any
) -> None:
    await page.goto(site.put("/here"))
    got = """
    async (endpoint, port) => {
      const socket = new WebSocket(endpoint);
      const opened = await new Promise((done) => {
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
      });
      const read = async (path, how) => {
        try { return await (await fetch(`http://127.0.0.1:${port}${path}`, how)).text() }
        catch (error) { return error.name }
      };
      return [opened, await read("/json/version", {}), await read("/json/list", {}),
              await read("/json/new?about:blank", {method: "PUT"})];
    }
    """
    assert await page.evaluate(got, shared_endpoint, port_of(shared_endpoint)) == [
        "refused",
        "TypeError",
        "TypeError",
        "TypeError",
    ]


async def test_name_that_leads_to_the_debugging_port_is_refused(shared_endpoint: str) -> None:
    """DNS rebinding: the browser's page is of the same origin, by a name of somebody's own."""
    port = port_of(shared_endpoint)
    for host, status in (("evil.example", b" 500 "), (f"127.0.0.1:{port}", b" 200 ")):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            request = f"GET /json/version HTTP/1.1\r\nHost: {host}\r\n\r\n"
            await stream.send_all(request.encode())
            with trio.fail_after(5):
                answer = await stream.receive_some(4096)
        assert status in answer.partition(b"\r\n")[0]
        assert (b"webSocketDebuggerUrl" in answer) == (status == b" 200 ")


def port_of(endpoint: str) -> int:
    found = re.match(r"ws://127\.0\.0\.1:(\d+)/", endpoint)
    assert found
    return int(found[1])


# Downloads


async def test_download_leaves_no_file(settings: LaunchSettings, profiles: Path, site: Any) -> None:
    headers = {"Content-Disposition": "attachment; filename=taken-home.txt"}
    file = site.put("/file", b"downloaded content" * 4096, headers=headers)
    click = """
    async (url) => {
      const link = document.createElement("a");
      Object.assign(link, {href: url, download: "taken-home.txt"});
      document.body.append(link);
      link.click();
      const made = document.createElement("a");
      const blob = new Blob(["downloaded content"]);
      Object.assign(made, {href: URL.createObjectURL(blob), download: "taken-home.txt"});
      made.click();
      await new Promise((done) => setTimeout(done, 300));
    }
    """
    async with launched(settings) as (_, connection):
        page = await a_page(connection)
        with pytest.raises(NavigationFailed):
            await page.goto(file)
        await page.goto(site.put("/here", "<body>"))
        await page.evaluate(click, file)
        profile = only_one(profiles)
        found = [path for path in profile.rglob("*") if is_download(path)]
    assert [request.path for request in site.requests].count("/file") >= 1
    assert found == []


def is_download(path: Path) -> bool:
    named = "taken-home" in path.name or path.suffix == ".crdownload"
    try:
        return named or (path.is_file() and b"downloaded content" in path.read_bytes())
    except FileNotFoundError:  # removed meanwhile
        return False
