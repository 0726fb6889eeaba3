"""The owner's extension (`extension/`) in a real Chromium, with a daemon that needs a token."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd.browser.cdp import CdpConnection, CdpSession, connect
from smartlinkd.browser.chromium import LaunchSettings, launch
from tests.contract.keys import key_for, make_key
from tests.e2e.conftest import until

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

SOURCES = Path(__file__).parents[2] / "extension"
SCOPES = ["cookie:write", "status", "convert"]

# The daemon's launcher passes --disable-extensions. A headless Chromium cannot show the prompt for
# hosts, so the profile says that they are granted.
BROWSER = """\
#!/bin/sh
for word; do
    shift
    case $word in
    --disable-extensions) continue ;;
    --user-data-dir=*) mkdir -p "${{word#*=}}/Default"
        cp '{preferences}' "${{word#*=}}/Default/Preferences" ;;
    esac
    set -- "$@" "$word"
done
exec /usr/lib/chromium/chromium "$@" --load-extension='{folder}'
"""

Json = dict[str, Any]


def id_of(folder: Path) -> str:
    """Return the id that Chromium gives an unpacked extension without a key."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:32]
    return "".join(chr(ord("a") + int(digit, 16)) for digit in digest)


@pytest.fixture(scope="module")
def folder(shared_open_folder: Path) -> Path:
    """The extension in a folder that Chromium's user can read."""
    place = shared_open_folder / "owners-extension"
    shutil.copytree(SOURCES, place / "extension")
    permissions = {
        "api": json.loads((SOURCES / "manifest.json").read_text())["permissions"],
        "explicit_host": ["http://127.0.0.1/*"],
        "manifest_permissions": [],
        "scriptable_host": [],
    }
    granted = {
        "active_permissions": permissions,
        "granted_permissions": permissions,
        "runtime_granted_permissions": {**permissions, "api": []},
    }
    settings = {id_of(place / "extension"): granted}
    preferences = place / "preferences.json"
    preferences.write_text(json.dumps({"extensions": {"settings": settings}}))
    browser = place / "browser"
    browser.write_text(BROWSER.format(preferences=preferences, folder=place / "extension"))
    browser.chmod(0o755)
    return place


@pytest.fixture
def daemon(running: Running) -> Iterator[Daemon]:
    """The test's own daemon, without a stored cookie."""
    with running(cookie={"open_to": []}, products={"source": "none"}) as daemon:
        daemon.wait_for_browser()
        yield daemon


def pairing_text(given: Json) -> str:
    packed = base64.urlsafe_b64encode(json.dumps(given).encode()).decode().rstrip("=")
    return f"smartlinkd-pair:{packed}"


@dataclass
class Extension:
    """The extension, used from one of its own pages."""

    daemon: Daemon
    portal: Portal
    chromium: CdpConnection
    page: CdpSession

    async def evaluate(self, expression: str) -> Any:
        told = await self.page.call(
            "Runtime.evaluate",
            {
                "expression": expression,
                "awaitPromise": True,
                "returnByValue": True,
                "userGesture": True,
            },
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def act(self, name: str) -> Json:
        """Do what a button of the pop-up does, and return the new state."""
        message = json.dumps({"act": name})
        state: Json = await self.evaluate(f"chrome.runtime.sendMessage({message})")
        return state

    async def badge(self) -> str:
        return str(await self.evaluate("chrome.action.getBadgeText({})"))

    async def pair(self, key: str) -> str:
        """Fill in the pairing tab, and return its message."""
        origins = self.portal.origins
        given = {
            "url": self.daemon.url,
            "key": key,
            "shop": origins.shop,
            "portal": origins.portal,
        }
        return await self.paste(f" {pairing_text(given)}\n")

    async def paste(self, text: str) -> str:
        await self.evaluate(
            f"""document.querySelector("textarea").value = {json.dumps(text)};
            document.querySelector("form").requestSubmit()"""
        )

        async def answer() -> str:
            done, fault = (
                f"document.getElementById('{id}').textContent" for id in ("done", "fault")
            )
            return str(await self.evaluate(f"{done} + {fault}"))

        return await until("the pairing tab's answer", answer)

    async def log_in(self, account: Account, **different: str) -> None:
        """Give the browser the account's cookies, as a login at the portal does."""
        pairs = (pair.partition("=") for pair in account.cookie.split("; "))
        cookies = {name: value for name, _, value in pairs} | different
        self.daemon.secrets |= account.secrets
        await self.chromium.browser.call(
            "Storage.setCookies",
            {
                "cookies": [
                    {"name": name, "value": value, "url": self.portal.origins.portal}
                    for name, value in cookies.items()
                ]
            },
        )

    async def log_out(self) -> None:
        await self.chromium.browser.call("Storage.clearCookies", {})


@asynccontextmanager
async def installed(folder: Path, daemon: Daemon, portal: Portal) -> AsyncIterator[Extension]:
    settings = LaunchSettings(executable=folder / "browser")
    async with launch(settings) as chromium, connect(chromium.endpoint) as connection:
        place = {"url": f"chrome-extension://{id_of(folder / 'extension')}/pair.html"}
        made = await connection.browser.call("Target.createTarget", place)
        page = await connection.attach(made["targetId"])
        extension = Extension(daemon, portal, connection, page)

        async def is_shown() -> bool:
            # The page's script sets the heading's text.
            heading = "document.querySelector('h1')?.textContent"
            return bool(await extension.evaluate(heading))

        await daemon.until("the pairing tab", is_shown)
        yield extension


async def account_of(daemon: Daemon) -> Json:
    answer = await daemon.ask("GET", "/api/account", token=await daemon.login())
    found: Json = answer.json()
    return found


async def test_extension_syncs_a_login_and_says_how_the_account_stands(
    folder: Path, daemon: Daemon, portal: Portal
) -> None:
    first, second = portal.account(), portal.account()
    made = await make_key(daemon, *SCOPES)
    async with installed(folder, daemon, portal) as extension:
        assert (await extension.act("look"))["kind"] == "notPaired"
        assert "Paired" in await extension.pair(made["key"])
        assert ((await extension.act("look"))["kind"], await extension.badge()) == ("noCookie", "!")

        await extension.log_in(first)

        async def is_synced() -> bool:
            return bool((await account_of(daemon))["cookie"]["stored"])

        await daemon.until("the login is synced", is_synced)
        synced = (await account_of(daemon))["cookie"]["syncedAt"]
        assert ((await extension.act("look"))["kind"], await extension.badge()) == ("active", "")

        # Browsing changes cookies. Neither change is a new session for the daemon.
        await extension.log_in(first, SPC_SI="rotated")
        await extension.log_in(first, SPC_ST=".rotated-by-browsing-on")
        assert (await extension.act("look"))["kind"] == "active"
        assert (await account_of(daemon))["cookie"]["syncedAt"] == synced

        # A sync by the button does not end a pause.
        await portal.arm("human_check", first)
        assert (await daemon.convert(portal.link(portal.item()), account=None)).status_code == 502
        assert (await extension.act("sync"))["kind"] == "paused"
        assert await extension.badge() == "||"
        await daemon.ask("POST", "/api/account/clear", token=await daemon.login())

        # A change of the account needs a confirmation.
        await extension.log_in(second)
        await daemon.until("the other account is noticed", _is(extension, "otherAccount"))
        assert await extension.badge() == "?"
        assert (await extension.act("replace"))["kind"] == "active"
        link = portal.link(portal.item())
        assert (await daemon.convert(link, account=None)).status_code == 200
        assert len(await portal.submits(second)) == 1

        await extension.log_out()
        await daemon.until("the logout is noticed", _is(extension, "noCookie"))
        assert await extension.badge() == "!"

        await daemon.ask("DELETE", f"/api/keys/{made['id']}", token=await daemon.login())
        assert ((await extension.act("look"))["kind"], await extension.badge()) == ("refused", "x")


def _is(extension: Extension, kind: str) -> Any:
    async def look() -> bool:
        return bool((await extension.act("look"))["kind"] == kind)

    return look


async def test_extension_copies_the_affiliate_link_of_a_page(
    folder: Path, daemon: Daemon, portal: Portal
) -> None:
    account, item = portal.account(), portal.item()
    key = await key_for(daemon, *SCOPES)
    async with installed(folder, daemon, portal) as extension:
        await extension.pair(key)
        await extension.log_in(account)
        await extension.act("replace")
        made = await extension.chromium.browser.call(
            "Target.createTarget", {"url": portal.link(item)}
        )
        tab = await extension.chromium.attach(made["targetId"])
        url = json.dumps(portal.link(item))

        async def tab_id() -> int:
            found = f"tab.url === {url} && tab.status === 'complete'"
            return int(
                await extension.evaluate(
                    f"chrome.tabs.query({{}}).then(tabs => tabs.find(tab => {found})?.id ?? 0)"
                )
            )

        number = await until("the product's page", tab_id)
        message = f"{{act: 'copy', url: {url}, tabId: {number}}}"
        told = await extension.evaluate(f"chrome.runtime.sendMessage({message})")
        short = portal.entry(item, account, product=False)["shortLink"]
        assert told["text"] == short
        shown = await tab.call(
            "Runtime.evaluate",
            {"expression": "document.querySelector('[data-smartlinkd]').textContent"},
        )
        assert short in shown["result"]["value"]


async def test_wrong_pairing_text_is_named(folder: Path, daemon: Daemon, portal: Portal) -> None:
    plain_http = {
        "url": "http://192.0.2.1:8787",
        "key": "slk_x",
        "shop": "https://shopee.vn",
        "portal": "https://affiliate.shopee.vn",
    }
    wrong = {
        "hello": "no pairing text",
        "smartlinkd-pair:%%%": "not whole",
        pairing_text(plain_http): "plain http",
    }

    async with installed(folder, daemon, portal) as extension:

        async def is_named(text: str, fault: str) -> bool:
            return fault in await extension.paste(text)

        for text, fault in wrong.items():
            await until(fault, partial(is_named, text, fault))
