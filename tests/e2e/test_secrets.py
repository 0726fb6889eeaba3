"""No secret is told: not in the log at its most talkative, not in an answer that does not hold it
by its meaning, not on disk but in the file that is for it, not to another process.

One broad run of good and bad requests, with everything going wrong in it that can; then a search.
Every other daemon of these tests is searched as well (see `Daemon.check_left_nothing`).
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyotp
import pytest
import trio

from smartlinkd.sandbox.faults import BY_NAME

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

SYNC_KEY = "sync-key-of-the-extension-0123456789"
API_SECRET = "open-api-secret-of-the-owners-app"
WRONG_PASSWORD = "a password mistyped by its owner"
BASE32 = re.compile(r"[A-Z2-7]{32}")
CUT_SHORT = "a-session-cut-short-in-the-clipboard"


@pytest.fixture
def keys(open_folder: Path) -> dict[str, dict[str, object]]:
    """Sections of a configuration that hold all the secrets there can be."""
    path = open_folder / "sync-key"
    path.write_text(SYNC_KEY)
    path.chmod(0o600)
    return {
        "cookie": {"sync_key_file": str(path)},
        "open_api": {"app_id": "123456", "secret": API_SECRET},
    }


class Owner:
    """Does with a daemon all that can be done, right and wrong."""

    def __init__(self, daemon: Daemon, portal: Portal) -> None:
        self.daemon = daemon
        self.portal = portal
        self.account: Account = portal.account()
        self.token = ""
        self.shown: list[str] = []
        daemon.secrets |= {SYNC_KEY, API_SECRET, WRONG_PASSWORD, CUT_SHORT}

    async def log_in(self) -> None:
        """By the password alone, and with the second factor switched on."""
        daemon, password = self.daemon, self.daemon.password
        await self._post("auth/login", {"password": WRONG_PASSWORD}, 401)
        await self._post("auth/login", {"password": [password]}, 400)
        await self._post("auth/login", password, 400)
        self.token = token = await daemon.login()
        setup = (await daemon.ask("GET", "/api/auth/2fa/setup", token=token)).json()
        codes, moment = pyotp.TOTP(setup["secret"]), int(time.time())
        code, following = codes.at(moment), codes.at(moment, counter_offset=1)
        wrong = next(f"{n:06}" for n in range(9) if not codes.verify(f"{n:06}", valid_window=3))
        daemon.secrets |= {setup["secret"], setup["qrCode"], code, following, wrong}
        body = {"secret": setup["secret"], "code": wrong}
        await self._post("auth/2fa/enable", body, 401)
        await self._post("auth/2fa/enable", body | {"code": code}, 200)
        await self._post("auth/2fa/enable", body | {"code": code}, 400)
        temporary = (await self._post("auth/login", {"password": password}, 200))["tempToken"]
        daemon.secrets.add(temporary)
        body = {"tempToken": temporary, "code": following}
        await self._post("auth/verify-mfa", body | {"code": wrong}, 401)
        await self._post("auth/verify-mfa", body | {"code": [following]}, 400)
        await self._post("auth/verify-mfa", body | {"tempToken": token}, 403)
        daemon.secrets.add((await self._post("auth/verify-mfa", body, 200))["token"])
        for bad in (temporary, token[:-3], f"{token}x", SYNC_KEY):
            answer = await daemon.ask("GET", f"/api/status?token={token}", token=bad)
            assert answer.status_code == 403
        assert (await daemon.ask("GET", f"/api/{token}")).status_code == 404

    async def sync(self) -> None:
        """A cookie that is good, and some that are not."""
        await self.daemon.sync(self.account)
        await self._post("sync-cookie", {"cookie": self.account.cookie}, 200, token=SYNC_KEY)
        for bad in (CUT_SHORT, f"SPC_EC={CUT_SHORT}\x07", f"SPC_EC={CUT_SHORT * 200}"):
            await self._post("sync-cookie", {"cookie": bad}, 400)
            await self._post("convert", {"links": ["x"], "cookie": bad}, 400)
        await self._post("sync-cookie", {"cookie": {"SPC_EC": CUT_SHORT}}, 400)

    async def convert(self) -> None:
        """With success, and into all kinds of trouble."""
        answer = await self._convert("a-link-that-works", 200)
        assert any("shortLink" in entry for entry in answer["mapping"].values())
        for fault in ("submit_graphql_error", "product_500", "product_401"):
            await self._convert(fault, 200)
        for fault in ("session_lost", "submit_html", "submit_cut", "page_hang_on_submit"):
            await self._convert(fault, 502)
        await self._convert("human_check", 502)
        links = {"links": ["https://owner:word@shop.example/"], "subIds": ["a b"]}
        await self._post("convert", links, 400)

    async def lose_the_browser(self) -> None:
        """While it converts."""
        await self.daemon.run("account", "clear")
        await self.portal.arm("submit_slow", self.account)
        submits = len(await self.portal.submits(self.account))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._convert, "submit_slow", 502)
            await self.portal.submitting(self.account, nth=submits + 1)
            os.kill((await self.daemon.status())["browser"]["pid"], signal.SIGKILL)
        await self.daemon.until_ready()

    async def look(self) -> None:
        """At all that there is to see."""
        for path in ("/api/status", "/metrics", "/openapi.json", "/readyz"):
            self.shown.append((await self.daemon.ask("GET", path, token=self.token)).text)
        await self._run(["status"], ["account", "show", "--json"])

    async def take_everything_back(self) -> None:
        await self._run(["tokens", "revoke"], ["2fa", "off"])
        await self._post("convert", {"links": ["x"]}, 403)

    async def _run(self, *commands: list[str]) -> None:
        async def run(words: list[str]) -> None:
            self.shown.append(await self.daemon.run(*words))

        async with trio.open_nursery() as nursery:
            for words in commands:
                nursery.start_soon(run, words)

    async def _convert(self, fault: str, status: int) -> Any:
        if fault in BY_NAME:
            await self.portal.arm(fault, self.account)
        links = [self.portal.link(self.portal.item()), self.portal.short("gone")]
        return await self._post("convert", {"links": links}, status)

    async def _post(self, path: str, body: object, status: int, *, token: str = "") -> Any:
        answer = await self.daemon.ask("POST", f"/api/{path}", body, token=token or self.token)
        assert answer.status_code == status, (path, answer.text)
        return answer.json()


async def test_no_secret_is_told(
    running: Running, portal: Portal, keys: dict[str, dict[str, object]]
) -> None:
    with running(browser={"job_timeout": 8}, **keys) as daemon:
        owner = Owner(daemon, portal)
        daemon.wait_for_browser()
        await owner.log_in()
        await owner.sync()
        await owner.convert()
        await owner.lose_the_browser()
        await owner.look()
        check_disk(daemon)
        check_processes(daemon)
        await owner.take_everything_back()
        daemon.secrets.add(signing_secret(daemon))
        assert not daemon.told("\n".join(owner.shown))
    # On leaving the block the log was searched.


def check_disk(daemon: Daemon) -> None:
    """The state, the log, Chromium's profile: all files of the daemon's."""
    state = daemon.config.parent / "state"
    meant_for_it = {
        # The configuration is the owner's own, and holds what the owner wrote there.
        daemon.config: {API_SECRET},
        state / "auth.json": {secret for secret in daemon.secrets if BASE32.fullmatch(secret)},
    }
    for path in files_in(daemon.config.parent):
        with suppress(FileNotFoundError):  # Chromium has removed it meanwhile
            found = daemon.told(path.read_bytes().decode(errors="replace"))
            assert set(found) <= meant_for_it.get(path, set()), path
    assert {path.stat().st_mode & 0o777 for path in files_in(state)} == {0o600}


def check_processes(daemon: Daemon) -> None:
    """What every user can see of a process, and what its own user can."""
    for pid in daemon.processes() | {daemon.program.process.pid}:
        for kind in ("cmdline", "environ"):
            with suppress(OSError):  # it has ended since, or shows itself to root only
                text = Path(f"/proc/{pid}/{kind}").read_bytes().decode(errors="replace")
                assert not daemon.told(text), kind


def files_in(folder: Path) -> list[Path]:
    """All files, sockets aside."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]


def signing_secret(daemon: Daemon) -> str:
    return (daemon.config.parent / "state" / "signing-secret").read_text().strip()
