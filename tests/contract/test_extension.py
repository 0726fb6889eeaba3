"""The browser extension, as far as the daemon serves it: its files, and what its key can do.

What the extension does in a browser is tested with a real Chromium in `tests/e2e`.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.keys import key_for

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal, Running
    from tests.e2e.conftest import Account

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

NAMES = ["smartlinkd-chromium.zip", "smartlinkd-firefox.zip"]
SCOPES = ["cookie:write", "status", "convert"]
ALLOWED = {"https", "http://127.0.0.1", "http://localhost"}
"""Where the extension may send anything: https, and plain http on loopback."""


@pytest.fixture
def daemon(running: Running) -> Iterator[Daemon]:
    """A daemon of the test's own, to which nobody is local; no cookie is stored."""
    with running(products={"source": "none"}, cookie={"open_to": []}) as daemon:
        daemon.wait_for_browser()
        yield daemon


async def files(daemon: Daemon, name: str = NAMES[0]) -> dict[str, str]:
    """Return the extension's text files by their paths."""
    answer = await daemon.ask("GET", f"/extension/{name}")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/zip")
    packed = zipfile.ZipFile(io.BytesIO(answer.content))
    texts = [each for each in packed.namelist() if each.endswith((".js", ".json", ".html"))]
    return {each: packed.read(each).decode() for each in texts}


async def call(daemon: Daemon, key: str, method: str, path: str, body: Json | None = None) -> Json:
    """Call the daemon as the extension does. Return the body, with the status as `status`."""
    answer = await daemon.ask(method, path, body, token=key)
    return {**answer.json(), "status": answer.status_code}


async def sync(daemon: Daemon, key: str, account: Account) -> Json:
    """Send an account's cookie."""
    daemon.secrets |= account.secrets
    return await call(daemon, key, "POST", "/api/sync-cookie", {"cookie": account.cookie})


# Its files


@pytest.mark.parametrize("name", NAMES)
async def test_extension_file_is_open_to_strangers(linking: Daemon, name: str) -> None:
    stranger = {"X-Forwarded-For": "203.0.113.7", "Host": "links.example.org"}
    assert (await linking.ask("GET", "/metrics", headers=stranger)).status_code == 403
    answer = await linking.ask("GET", f"/extension/{name}", headers=stranger)
    assert answer.status_code == 200
    assert "manifest.json" in zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
    assert (await linking.ask("GET", "/extension/other.zip")).status_code == 404


async def test_extension_has_no_host_before_it_asks_for_it(linking: Daemon) -> None:
    found = await files(linking)
    manifest = json.loads(found["manifest.json"])
    assert not {"host_permissions", "content_scripts"} & manifest.keys()
    optional = manifest["optional_host_permissions"]
    assert optional == ["https://*/*", "http://127.0.0.1/*", "http://localhost/*"]
    assert any("permissions.request(" in text for text in found.values())


async def test_extension_may_connect_to_no_plain_http_but_loopback(linking: Daemon) -> None:
    manifest = json.loads((await files(linking))["manifest.json"])
    policy = manifest["content_security_policy"]["extension_pages"]
    (connect,) = re.findall(r"connect-src ([^;]+)", policy)
    assert {re.sub(r":\*?$", "", source) for source in connect.split()} == ALLOWED


async def test_extension_has_one_place_that_sends_and_names_no_host(linking: Daemon) -> None:
    found = await files(linking)
    code = "\n".join(text for path, text in found.items() if not path.endswith(".json"))
    assert len(re.findall(r"\bfetch\(", code)) == 1
    assert not re.search(r"XMLHttpRequest|WebSocket|EventSource|sendBeacon|RTCPeer", code)
    assert not re.search(r"https?://\w", code)
    assert not re.search(r"(?:src|href|action)=\"(?:\w+:|//)", code)


# Its key


async def test_key_of_extension_syncs_converts_and_ends_itself_and_no_more(
    linking: Daemon, portal: Portal
) -> None:
    daemon, key = linking, await key_for(linking, *SCOPES)
    account, item = portal.account(), portal.item()
    await daemon.sync(account)
    account.renew()
    assert (await sync(daemon, key, account))["status"] == 200
    link = portal.link(item)
    made = await call(daemon, key, "POST", "/api/convert", {"links": [link]})
    assert made["mapping"] == {link: portal.entry(item, account, product=False)}
    for path in ("/api/sync-cookie", "/api/history", "/api/keys", "/metrics"):
        assert (await call(daemon, key, "GET", path))["status"] == 403, path
    assert (await call(daemon, key, "POST", "/api/account/clear"))["status"] == 403
    assert (await call(daemon, key, "DELETE", "/api/keys/self"))["status"] == 200
    assert (await call(daemon, key, "GET", "/api/account"))["status"] == 403


async def test_key_of_extension_sees_a_missing_and_a_lost_session(
    daemon: Daemon, portal: Portal
) -> None:
    key, account = await key_for(daemon, *SCOPES), portal.account()

    async def shown() -> tuple[bool, list[str]]:
        found = await call(daemon, key, "GET", "/api/account")
        return found["cookie"]["stored"], [each["state"] for each in found["accounts"]]

    assert await shown() == (False, [])
    await sync(daemon, key, account)
    assert (await daemon.convert(portal.link(portal.item()), account=None)).status_code == 200
    assert await shown() == (True, ["active"])
    await portal.arm("session_lost", account)
    assert (await daemon.convert(portal.link(portal.item()), account=None)).status_code == 502
    assert await shown() == (True, ["session_lost"])
    account.renew()
    assert (await sync(daemon, key, account))["status"] == 200
    assert await shown() == (True, ["active"])
