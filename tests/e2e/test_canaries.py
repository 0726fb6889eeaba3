"""Secrets do not leak: each possible secret of a daemon is a unique text (a canary).

One daemon uses all its features, is then killed with SIGABRT, and must not reveal a canary in its
log, answers, files, store, commands' output or process information, in any encoding. Other daemons
of these tests are checked when they end (`Daemon.check_left_nothing`).
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyotp
import pytest
import trio

from smartlinkd.auth.passwords import hash_password
from tests.fakes.receiver import Call, open_receiver

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium

PASSWORD = "canary: the owner's passphrase, ünd so"
WRONG_PASSWORD = "canary: almost the owner's passphrase"
SIGNING = "c0" * 16 + "5161" * 8
MASTER = "c1" * 16 + "3a57" * 8
SYNC_KEY = "canary-of-the-sync-key-0123456789"
API_SECRET = "canary-of-the-open-api's-secret"
WEBHOOK_SECRET = "canary-that-webhook-calls-are-signed-with"
MODEL_KEY = "sk-canary-of-the-key-of-a-model"
BEARER = "canary-of-a-receivers-bearer-token"
BASIC = "canary-of-a-receiver's-password"
WEBHOOK_PATH = "canary-in-the-path-of-a-webhook"
NOTIFY_PATH = "canary-in-the-path-of-the-owners-own-address"
CUT_SHORT = "canary-of-a-session-cut-short-in-the-clipboard"

FAULTS = {
    "submit_graphql_error": 200,
    "submit_html": 502,
    "submit_cut": 502,
    "page_hang_on_submit": 502,
    "session_lost": 502,
    "human_check": 502,
}
"""Faults of the portal in this order, with the status of the answer."""

WORKER = """
say() { printf '%s\\n' "$1" >&3; }
IFS= read -r inputs <&3
say '{"type": "started", "total_tasks": 1}'
say '{"type": "task_started", "task_id": "only", "name": "Only"}'
say '{"type": "tool_call", "call_id": "1", "tool": "convert_links", "arguments": {"links": ["x"]}}'
IFS= read -r result <&3
say '{"type": "human_input", "task_id": "only", "prompt": "good?"}'
IFS= read -r answer <&3
echo "$MODEL_KEY" >&2
exit 3
"""


def encodings(secret: str) -> set[bytes]:
    """Return a secret as encoders write it; in base64 for each of the three possible offsets."""
    raw = secret.encode()
    found = {raw, quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode()}
    found |= {raw.hex().encode(), repr(secret)[1:-1].encode()}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw)
        # The characters at both ends also encode neighbouring bytes.
        whole = encoded[4 if before else 0 : -4]
        found |= {whole, whole.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


@dataclass
class Canaries:
    """Secrets that must be found nowhere; `secret_of` maps each encoding to its secret."""

    secret_of: dict[bytes, str] = field(default_factory=dict)

    def plant(self, *secrets: str) -> None:
        for secret in secrets:
            assert len(secret) > 15, "too short to be like no other"
            self.secret_of |= dict.fromkeys(encodings(secret), secret)

    def found_in(self, content: bytes | str) -> set[str]:
        data = content.encode(errors="replace") if isinstance(content, str) else content
        return {secret for encoded, secret in self.secret_of.items() if encoded in data}


@dataclass
class CanaryDaemon:
    """A daemon that uses every feature. `shown` has all answers that must not hold a secret."""

    daemon: Daemon
    portal: Portal
    account: Account
    receiver: str
    canaries: Canaries = field(default_factory=Canaries)
    shown: list[str] = field(default_factory=list)
    token: str = ""

    async def ask(
        self, method: str, path: str, body: object = None, *, status: int, token: str | None = None
    ) -> Any:
        """Send a request whose answer must hold no secret."""
        given = self.token if token is None else token
        answer = await self.daemon.ask(method, path, body, token=given)
        assert answer.status_code == status, (path, answer.text)
        self.shown.append(f"{answer.headers}\n{answer.text}")
        return answer

    async def secrets_of(self, method: str, path: str, body: object = None) -> Any:
        """Send a request whose answer holds a secret; the caller plants it."""
        answer = await self.daemon.ask(method, path, body, token=self.token)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def log_in(self) -> None:
        password = {"password": PASSWORD}
        await self.ask("POST", "/api/auth/login", {"password": WRONG_PASSWORD}, status=401)
        await self.ask("POST", "/api/auth/login", {"password": [PASSWORD]}, status=400)
        self.token = (await self.secrets_of("POST", "/api/auth/login", password))["token"]
        setup = await self.secrets_of("GET", "/api/auth/2fa/setup")
        codes, now = pyotp.TOTP(setup["secret"]), int(time.time())
        self.canaries.plant(self.token, setup["secret"])
        body = {"secret": setup["secret"], "code": codes.at(now)}
        await self.ask("POST", "/api/auth/2fa/enable", body, status=200)
        temporary = (await self.secrets_of("POST", "/api/auth/login", password))["tempToken"]
        body = {"tempToken": temporary, "code": codes.at(now, counter_offset=1)}
        session = (await self.secrets_of("POST", "/api/auth/verify-mfa", body))["token"]
        self.canaries.plant(temporary, session)
        for wrong in (temporary, session[:-2], SYNC_KEY, MASTER):
            await self.ask("GET", f"/api/status?token={session}", status=403, token=wrong)

    async def convert(self) -> None:
        """Convert with the stored cookie and with the request's own, also with faults of the
        portal."""
        self.canaries.plant(*(one for one in self.account.secrets if len(one) > 15))
        cookie = {"cookie": self.account.cookie}
        await self.ask("POST", "/api/sync-cookie", cookie, status=200, token=SYNC_KEY)
        await self.ask("POST", "/api/sync-cookie", {"cookie": [self.account.cookie]}, status=400)
        links = {"links": [self.portal.link(self.portal.item()), "javascript:alert(1)"]}
        await self.ask("POST", "/api/convert", links, status=200)
        for bad in (CUT_SHORT, f"SPC_EC={CUT_SHORT}\x07", f"SPC_EC={CUT_SHORT * 200}"):
            await self.ask("POST", "/api/sync-cookie", {"cookie": bad}, status=400)
            await self.ask("POST", "/api/convert", {"links": ["x"], "cookie": bad}, status=400)
        for fault, status in FAULTS.items():
            await self.portal.arm(fault, self.account)
            links = {"links": [self.portal.link(self.portal.item()), self.portal.short("gone")]}
            await self.ask("POST", "/api/convert", links | cookie, status=status)

    async def kill_the_browser(self) -> None:
        await self.daemon.run("account", "clear")
        await self.portal.arm("submit_slow", self.account)
        submits = len(await self.portal.submits(self.account))
        links = {"links": [self.portal.link(self.portal.item())]}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(self.ask, "POST", "/api/convert", links, status=502))
            await self.portal.submitting(self.account, nth=submits + 1)
            status = (await self.ask("GET", "/api/status", status=200)).json()
            os.kill(status["browser"]["pid"], signal.SIGKILL)
        await self.daemon.until_ready()

    async def run_a_crew(self) -> None:
        """Run a crew whose webhooks need credentials; its worker writes its key to stderr and
        fails."""
        tokens = [
            (
                await self.secrets_of(
                    "POST", f"/api/crews/token{path}", {"crew": "all", "user": user}
                )
            )
            for path, user in (("", None), ("", "ann"), ("/rotate", "ann"))
        ]
        organization, _, user = (each["token"] for each in tokens)
        self.canaries.plant(*(each["token"] for each in tokens))
        bearer = {"strategy": "bearer", "token": BEARER}
        basic = {"strategy": "basic", "username": "asker", "password": BASIC}
        body: Any = {
            "inputs": {},
            "crewWebhookUrl": f"{self.receiver}/{WEBHOOK_PATH}",
            "webhooks": {"url": f"{self.receiver}/x", "events": [], "authentication": bearer},
            "humanInputWebhook": {"url": f"{self.receiver}/y", "authentication": basic},
        }
        wrong = {**body, "crewWebhookUrl": f"http://u:{BASIC}@10.0.0.1/{WEBHOOK_PATH}"}
        await self.ask("POST", "/crews/all/kickoff", wrong, status=400, token=user)
        await self.ask("POST", "/crews/all/kickoff", body, status=401, token=self.token)
        kicked_off = await self.ask("POST", "/crews/all/kickoff", body, status=200, token=user)
        one = kicked_off.json()["kickoff_id"]
        status = f"/crews/all/status/{one}"

        async def is_asked() -> bool:
            answer = await self.ask("GET", status, status=200, token=user)
            return bool(answer.json()["status"] == "waiting_for_human_input")

        await self.daemon.until("it asks", is_asked)
        self.search_files()  # while the webhook calls are pending
        assert self.daemon.workers()
        self.search_processes()  # including the worker's
        answer = {"execution_id": one, "task_id": "only", "human_feedback": "", "is_approve": True}
        await self.ask("POST", "/crews/all/resume", answer, status=200, token=organization)
        ended = await self.ask("GET", f"{status}?wait=30&result=object", status=200, token=user)
        assert ended.json()["state"] == "FAILED"
        for path in (f"/crews/all/events/{one}", "/crews/all/executions", "/crews/all/inputs"):
            await self.ask("GET", path, status=200, token=organization)

    async def read_everything(self) -> None:
        """Read everything that the owner and monitors can see."""
        for path in ("/api/status", "/api/crews", "/metrics", "/openapi.json", "/livez"):
            await self.ask("GET", path, status=200)
        for words in (["status"], ["crew", "list"], ["account", "show", "--json"]):
            self.shown.append(await self.daemon.run(*words))

    def search_files(self) -> None:
        """Search all files of the daemon and the rows of its store."""
        meant_for_it = {
            self.daemon.config: set(self.canaries.secret_of.values()),  # the owner's own file
            # The TOTP secret, which the daemon needs at its next start.
            self.daemon.state / "auth.json": {
                each
                for each in self.canaries.secret_of.values()
                if len(each) == 32 and each.isupper()
            },
        }
        seen = 0
        for path in self._files():
            with suppress(OSError):  # removed meanwhile, or not a file
                found = self.canaries.found_in(path.read_bytes())
                if path.parent == self.daemon.state and path.name.startswith("journal"):
                    found -= {WEBHOOK_PATH}  # the address of a pending call is stored
                assert found <= meant_for_it.get(path, set()), path
                seen += 1
        assert seen > 8
        kept = {path for path in self.daemon.state.rglob("*") if path.is_file()}
        assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
        for row in self.rows():
            assert self.canaries.found_in(row) <= {WEBHOOK_PATH}

    def _files(self) -> Iterator[Path]:
        """Chromium removes folders meanwhile, for which `Path.rglob` would raise an error."""
        for folder, _, names in os.walk(self.daemon.program.folder):
            yield from (Path(folder, name) for name in names)

    def rows(self) -> Iterator[str]:
        uri = f"file:{self.daemon.state / 'journal.sqlite3'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as journal:
            tables = [
                name
                for (name,) in journal.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table'"
                )
            ]
            for table in tables:
                yield from map(repr, journal.execute(f"SELECT * FROM {table}"))

    def search_processes(self) -> None:
        """Search what every user sees of a process, and what its own user sees."""
        of_workers = set().union(*self.daemon.workers().values())
        for pid in self.daemon.processes() | {self.daemon.program.process.pid}:
            for kind in ("cmdline", "environ"):
                with suppress(OSError):  # the process has ended, or only root may read it
                    found = self.canaries.found_in(Path(f"/proc/{pid}/{kind}").read_bytes())
                    meant = {MODEL_KEY} if kind == "environ" and pid in of_workers else set()
                    assert found <= meant, kind


@pytest.fixture
async def receiver() -> AsyncIterator[str]:
    """A receiver that refuses every webhook call, so that calls stay pending."""

    async def refuse(_: Call) -> int:
        return 503

    async with open_receiver(refuse) as receiver:
        yield receiver.url


@pytest.fixture
def core_files_allowed() -> Iterator[None]:
    """Allow core files, as some machines do."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def test_canary_is_found_in_every_encoding() -> None:
    canaries = Canaries()
    canaries.plant(PASSWORD)
    for before in range(7):
        text = b"x" * before + PASSWORD.encode() + b"yz"
        for hidden in (text, base64.b64encode(text), base64.urlsafe_b64encode(text)):
            assert canaries.found_in(b"..." + hidden + b"...") == {PASSWORD}
    for encoded in (
        quote(PASSWORD),
        json.dumps({"a": PASSWORD}),
        repr([PASSWORD]),
        PASSWORD.encode().hex(),
    ):
        assert canaries.found_in(encoded) == {PASSWORD}
    assert canaries.found_in(WRONG_PASSWORD) == set()


async def test_no_canary_is_found_anywhere(
    running: Running, portal: Portal, receiver: str, core_files_allowed: None
) -> None:
    crew = {
        "name": "all",
        "runner": "command",
        "command": ["/bin/sh", "-c", WORKER],
        "environment": {"MODEL_KEY": MODEL_KEY},
        "users": ["ann"],
        "tools": ["convert_links"],
    }
    with running(
        auth={"password_hash": hash_password(PASSWORD), "signing_secret": SIGNING},
        cookie={"sync_key": SYNC_KEY},
        open_api={"app_id": "123456", "secret": API_SECRET},
        products={"source": "none"},
        browser={"job_timeout": 8},
        webhooks={"secret": WEBHOOK_SECRET, "allow": ["127.0.0.0/8"]},
        notify={"url": f"{receiver}/{NOTIFY_PATH}", "command": ["/bin/false", NOTIFY_PATH]},
        crew_tokens={"master_secret": MASTER},
        crews=[crew],
    ) as daemon:
        tested = CanaryDaemon(daemon, portal, portal.account(), receiver)
        given = (PASSWORD, WRONG_PASSWORD, SIGNING, MASTER, SYNC_KEY, API_SECRET, WEBHOOK_SECRET)
        tested.canaries.plant(
            *given, CUT_SHORT, MODEL_KEY, BEARER, BASIC, WEBHOOK_PATH, NOTIFY_PATH
        )
        daemon.wait_for_browser()
        await tested.log_in()
        await tested.convert()
        await tested.kill_the_browser()
        await tested.run_a_crew()
        await tested.read_everything()
        tested.search_processes()
        # Like the service manager's watchdog: with a core file, if the machine keeps them.
        daemon.program.process.send_signal(signal.SIGABRT)
        assert await daemon.program.ended() == -signal.SIGABRT
        tested.search_files()
        assert list(cores(daemon)) == []
        daemon.start()
        tested.search_files()
        for shown in tested.shown:
            assert tested.canaries.found_in(shown) == set()


def cores(daemon: Daemon) -> Iterator[Path]:
    """Yield the daemon's core files from where the kernel may have put them."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    folders = {Path.cwd(), daemon.program.folder, Path(pattern).parent}
    for folder in folders:
        yield from folder.glob("core*")
