"""The browser extension: its files, the rights of its key, and the time of its syncs.

Its script runs in an imitated browser (`played_browser.py`). `tests/e2e` tests the installed
extension in a real Chromium.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.config_file import WITHOUT_BROWSER
from tests.contract.keys import key_for
from tests.contract.played_browser import PlayedBrowser

if TYPE_CHECKING:
    from pathlib import Path

    from tests.contract.conftest import Daemon, Portal, Running
    from tests.e2e.conftest import Account

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

NAMES = ["smartlinkd-chromium.zip", "smartlinkd-firefox.zip"]
SCOPES = ["cookie:write", "status", "convert"]
AT_ONCE_S, HALF_AN_HOUR_S, HOUR_S = 5, 1800, 3600
ALLOWED = {"https", "http://127.0.0.1", "http://localhost"}
"""Addresses to which the extension may send: https, and plain http on loopback."""


@pytest.fixture
def daemon(running: Running) -> Iterator[Daemon]:
    """The test's own daemon: no client counts as local, and no cookie is stored."""
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


# The files


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


# The key


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


# The syncs


async def test_extension_syncs_login_at_once_and_changes_every_30_minutes(
    running: Running, portal: Portal, tmp_path: Path
) -> None:
    with running(**WITHOUT_BROWSER, cookie={"open_to": []}) as daemon:
        key = await key_for(daemon, *SCOPES)
        steps: list[Json] = [
            {"at_s": 100, "cookies": login(daemon, portal.account())},
            {"at_s": 400, "cookies": {"SPC_ST": ".changed"}},
            {"at_s": 4000, "cookies": {"SPC_SI": "no-part-of-the-session"}},
        ]
        calls = await PlayedBrowser(daemon, tmp_path).run(key, steps, until_s=3 * HOUR_S)
    assert {call["origin"] for call in calls} == {daemon.url}
    first, second = syncs(calls)
    assert 100 <= first["at_s"] <= 100 + AT_ONCE_S
    assert "SPC_ST=.changed" not in first["body"]["cookie"]
    assert HALF_AN_HOUR_S <= second["at_s"] - first["at_s"] <= HALF_AN_HOUR_S + 60
    assert "SPC_ST=.changed" in second["body"]["cookie"]
    assert (first["status"], second["status"]) == (200, 200)


async def test_extension_syncs_new_login_at_once_after_the_session_was_lost(
    daemon: Daemon, portal: Portal, tmp_path: Path
) -> None:
    account = portal.account()
    await portal.arm("session_lost", account)
    steps: list[Json] = [
        {"at_s": 100, "cookies": login(daemon, account)},
        {"at_s": 200, "call": await conversion(daemon, portal.link(portal.item()))},
        {"at_s": 700, "cookies": {"SPC_EC": ".another-session"}},
    ]
    key = await key_for(daemon, *SCOPES)
    calls = await PlayedBrowser(daemon, tmp_path).run(key, steps, until_s=HOUR_S)
    _, second = syncs(calls)
    assert 700 <= second["at_s"] <= 700 + AT_ONCE_S
    assert "SPC_EC=.another-session" in second["body"]["cookie"]


async def test_extension_replaces_another_account_only_when_told(
    linking: Daemon, portal: Portal, tmp_path: Path
) -> None:
    await linking.sync(portal.account())
    steps: list[Json] = [
        {"at_s": 100, "cookies": login(linking, portal.account())},
        {"at_s": HOUR_S, "act": "replace"},
    ]
    key = await key_for(linking, *SCOPES)
    calls = await PlayedBrowser(linking, tmp_path).run(key, steps, until_s=2 * HOUR_S)
    refused, replaced = syncs(calls)
    assert (refused["status"], "replaceAccount" in refused["body"]) == (409, False)
    assert (replaced["status"], replaced["body"]["replaceAccount"]) == (200, True)
    assert replaced["at_s"] >= HOUR_S


def login(daemon: Daemon, account: Account) -> dict[str, str]:
    """Return the cookies that a login at the portal sets."""
    daemon.secrets |= account.secrets
    return dict(pair.split("=", 1) for pair in account.cookie.split("; "))


def syncs(calls: list[Json]) -> list[Json]:
    """Return the calls that send a cookie."""
    return [call for call in calls if call["path"] == "/api/sync-cookie"]


async def conversion(daemon: Daemon, link: str) -> Json:
    """Return the call by which the owner converts a link with the stored cookie."""
    headers = {
        "Authorization": f"Bearer {await daemon.login()}",
        "Content-Type": "application/json",
    }
    return {"path": "/api/convert", "headers": headers, "body": json.dumps({"links": [link]})}
