"""A browser extension that syncs the cookie: a real one, in a real Chromium. It has no permission
for hosts, so the browser asks first (CORS), and decides what the extension may read.

| promised | test |
|---|---|
| seed 1, filled by a browser extension | `test_it_syncs_the_cookie` |
| contract, 403 and 400 with what is wrong | `test_it_reads_what_is_wrong` |
| README, every answer has an `X-Request-Id` | `test_it_reads_what_is_wrong` |
| contract, no CORS but for the extension's origin | `test_another_one_reads_nothing` |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd.browser.cdp import CdpSession, connect
from smartlinkd.browser.chromium import LaunchSettings, launch

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Running

pytestmark = pytest.mark.chromium

KEY = "key-for-the-extension-0123456789"
SYNC = "/api/sync-cookie"
MANIFEST = {"manifest_version": 3, "name": "sync", "version": "1"}
PAGE, TITLE = "page.html", "the extension's"

# The daemon's browser has none: what it is told not to load is taken out again.
BROWSER = """\
#!/bin/sh
for word; do
    shift
    [ "$word" = --disable-extensions ] || set -- "$@" "$word"
done
exec /usr/lib/chromium/chromium "$@" --load-extension='{folders}'
"""
CALL = """\
fetch({url}, {options}).then(
    async answer => ({{
        status: answer.status,
        body: await answer.json(),
        id: answer.headers.get("X-Request-Id"),
    }}),
    error => ({{ error: error.message }}),
)
"""

Json = dict[str, Any]


@dataclass
class Extension:
    """Its page, in which its scripts run."""

    daemon: Daemon
    page: CdpSession

    async def ask(self, method: str, path: str, body: Json | None, *, key: str = "") -> Json:
        """What it can tell of the answer."""
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        options: Json = {"method": method, "headers": headers}
        if body is not None:
            options["body"] = json.dumps(body)
        url, given = json.dumps(self.daemon.url + path), json.dumps(options)
        asked = {
            "expression": CALL.format(url=url, options=given),
            "awaitPromise": True,
            "returnByValue": True,
        }
        told = await self.page.call("Runtime.evaluate", asked)
        found: Json = told["result"]["value"]
        return found


def origin_of(folder: Path) -> str:
    """An extension that has no key is named after where it is."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    return "chrome-extension://" + "".join(chr(ord("a") + int(digit, 16)) for digit in digest)


def unpacked(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    (folder / PAGE).write_text(f"<!doctype html><title>{TITLE}</title>")
    return folder


@pytest.fixture(scope="module")
def own(open_folder: Path) -> Path:
    """That of the owner."""
    return unpacked(open_folder / "extensions" / "own")


@pytest.fixture(scope="module")
def other(open_folder: Path) -> Path:
    """One that the owner has besides."""
    return unpacked(open_folder / "extensions" / "other")


@pytest.fixture(scope="module")
def browser(open_folder: Path, own: Path, other: Path) -> Path:
    """What starts a Chromium with both."""
    path = open_folder / "extensions" / "browser"
    path.write_text(BROWSER.format(folders=f"{own},{other}"))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def daemon(running: Running, own: Path) -> Iterator[Daemon]:
    """One as it is installed: open to nobody, with a key."""
    with running(
        cookie={"open_to": [], "sync_key": KEY, "extension_origins": [origin_of(own)]},
        links={"source": "open_api"},
        products={"source": "none"},
        open_api={"app_id": "1", "secret": "unused-here", "url": "http://127.0.0.1:1/"},
    ) as daemon:
        daemon.secrets.add(KEY)
        yield daemon


@asynccontextmanager
async def installed(browser: Path, folder: Path, daemon: Daemon) -> AsyncIterator[Extension]:
    """The extension of a folder, with its page open."""
    settings = LaunchSettings(executable=browser)
    async with launch(settings) as chromium, connect(chromium.endpoint) as connection:
        place = {"url": f"{origin_of(folder)}/{PAGE}"}
        made = await connection.browser.call("Target.createTarget", place)
        page = await connection.attach(made["targetId"])

        async def is_shown() -> bool:
            told = await page.call("Runtime.evaluate", {"expression": "document.title"})
            return bool(told["result"]["value"] == TITLE)

        await daemon.until("the extension's page", is_shown)
        yield Extension(daemon, page)


async def test_it_syncs_the_cookie(daemon: Daemon, browser: Path, own: Path) -> None:
    record = {"cookie": "SPC_U=4711; SPC_EC=.ec", "accountName": "Cửa hàng 🛒"}
    async with installed(browser, own, daemon) as extension:
        for path in (SYNC, "/api/sync-cookie-local"):
            told = await extension.ask("POST", path, record, key=KEY)
            assert (told["status"], told["body"]["accountName"]) == (200, "Cửa hàng 🛒")
        stored = await extension.ask("GET", SYNC, None, key=KEY)
    assert stored["body"] == told["body"] | {"cookie": record["cookie"]}


async def test_it_reads_what_is_wrong(daemon: Daemon, browser: Path, own: Path) -> None:
    async with installed(browser, own, daemon) as extension:
        for body, key, status in (
            ({"cookie": "SPC_U=1"}, "", 403),
            ({"cookie": ""}, KEY, 400),
            ({"cookie": "x" * 2**20}, KEY, 413),
        ):
            told = await extension.ask("POST", SYNC, body, key=key)
            assert told["status"] == status
            assert told["body"]["ok"] is False
            assert told["id"], "the log's lines about it are found by this"


async def test_another_one_reads_nothing(daemon: Daemon, browser: Path, other: Path) -> None:
    async with installed(browser, other, daemon) as extension:
        assert await extension.ask("GET", SYNC, None, key=KEY) == {"error": "Failed to fetch"}
