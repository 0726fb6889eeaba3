"""The machine in the container, as its owner uses it: `systemctl`, `journalctl`, HTTP."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from smartlinkd.sandbox.session import cookie_header

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/operating.md").read_text()
PASSWORD = "correct horse battery staple"
PORTAL = 9100
CREW = "quick"
"""One that has an address of its own in some tests, by a unit of its own."""
CREW_URL = "http://127.0.0.1:9000"
CREW_SOCKET = Path("/etc/systemd/system/smartlinkd-research.socket")
PATIENCE = 40.0
"""Seconds for anything that is sure to come. Only a test that fails waits that long."""
LOOK_EVERY = 0.05

Json = dict[str, Any]
T = TypeVar("T")


def run(*command: str, cwd: Path = ROOT, check: bool = True) -> str:
    """What a command says on both of its outputs; it has to end well, unless `check` is off."""
    ended = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert not check or ended.returncode == 0, f"{command}: {ended.returncode}\n{ended.stdout}"
    return ended.stdout


def until(what: str, look: Callable[[], T | None], within: float = PATIENCE) -> T:
    """Wait until `look` sees something; what it saw."""
    deadline = time.monotonic() + within
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(LOOK_EVERY)
    return seen


@dataclass
class Service:
    """One of the daemon's services, and its API as its owner calls it."""

    name: str = "smartlinkd"
    url: str = "http://127.0.0.1:8787"
    said: str = ""  # by its installation
    seconds: float = 0.0  # that this took
    _tokens: dict[str, str] = field(default_factory=dict)

    @property
    def configuration(self) -> Path:
        return Path("/etc", self.name, "config.toml")

    @property
    def state(self) -> Path:
        """Where it is in truth; /var/lib/NAME is a link to it."""
        return Path("/var/lib/private", self.name)

    # systemd's side

    def show(self, key: str) -> str:
        return run("systemctl", "show", "--value", "-p", key, self.name).strip()

    @property
    def pid(self) -> int:
        return int(self.show("MainPID"))

    @property
    def restarts(self) -> int:
        """Those that systemd did by itself."""
        return int(self.show("NRestarts"))

    def is_active(self) -> bool:
        return self.show("ActiveState") == "active"

    def processes(self) -> dict[int, str]:
        """All that it is made of: command lines by number."""
        group = self.show("ControlGroup")
        found: dict[int, str] = {}
        if not group:
            return found
        for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd"):
            for listing in Path(f"{mount}{group}").rglob("cgroup.procs"):
                for pid in listing.read_text().split():
                    try:
                        command = Path("/proc", pid, "cmdline").read_bytes()
                    except OSError:
                        continue  # it has ended
                    found[int(pid)] = command.replace(b"\0", b" ").decode()
        return found

    def journal(self, *options: str, since: str = "") -> list[Json]:
        """Its records since that moment, oldest first."""
        begin = [f"--since={since}"] if since else []
        said = run("journalctl", "-u", self.name, "-o", "json", "--no-pager", *begin, *options)
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def systemctl(self, verb: str) -> None:
        run("systemctl", verb, f"{self.name}.service")

    def started_anew(self, before: int) -> int:
        """Wait until another process than `before` serves; its number."""

        def other() -> int | None:
            return self.pid if self.pid not in (0, before) and self.is_active() else None

        return until("it is started anew", other)

    def until_ready(self, within: float = PATIENCE) -> None:
        until("its browser is ready", lambda: self.health().get("browserReady"), within)

    def configure(self, text: str) -> None:
        """Have the configuration end in `text`, in place of what it ended in before."""
        mark = "\n# What the tests need.\n"
        own, _, _ = self.configuration.read_text().partition(mark)
        self.configuration.write_text(f"{own}{mark}{text}")

    @contextmanager
    def drop_in(self, text: str) -> Iterator[None]:
        """Change the unit as its owner would, and take it back."""
        path = Path(f"/etc/systemd/system/{self.name}.service.d/test.conf")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        run("systemctl", "daemon-reload")
        try:
            yield
        finally:
            path.unlink()
            run("systemctl", "daemon-reload")

    # its API

    def health(self) -> Json:
        try:
            answer = httpx.get(f"{self.url}/api/health", timeout=5, trust_env=False)
        except httpx.HTTPError:
            return {}
        found: Json = answer.json()
        return found

    def ask(
        self,
        path: str,
        body: Json | None = None,
        *,
        token: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """A POST of `body`, or a GET without one."""
        given = dict(headers or {})
        if token:
            given["Authorization"] = f"Bearer {token}"
        method = "GET" if body is None else "POST"
        return httpx.request(
            method, self.url + path, json=body, headers=given, timeout=PATIENCE, trust_env=False
        )

    def answer(self, path: str, body: Json | None = None, *, token: str = "") -> Json:
        """The same where it is sure to be answered well."""
        answer = self.ask(path, body, token=token)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    def login(self) -> str:
        token: str = self.answer("/api/auth/login", {"password": PASSWORD})["token"]
        return token

    @property
    def sync_key(self) -> str:
        return (self.configuration.parent / "credentials/cookie.sync_key").read_text().strip()

    def store_cookie(self) -> str:
        cookie = cookie_header()
        self.answer("/api/sync-cookie", {"cookie": cookie}, token=self.sync_key)
        return cookie

    def stored_cookie(self) -> str | None:
        """None when it has none."""
        answer = self.answer("/api/sync-cookie", token=self.sync_key)
        found: str | None = answer.get("cookie")
        return found

    def crew_token(self, crew: str) -> str:
        if crew not in self._tokens:
            config = str(self.configuration)
            self._tokens[crew] = run(
                "smartlinkd", "crew", "token", crew, "--config", config
            ).strip()
        return self._tokens[crew]

    def forget_tokens(self) -> None:
        """Those of crews, because its state is another's now."""
        self._tokens.clear()

    def crew_health(self) -> str:
        """What a crew says at its own address; nothing where nobody listens."""
        bearer = {"Authorization": f"Bearer {self.crew_token(CREW)}"}
        try:
            return httpx.get(f"{CREW_URL}/", headers=bearer, timeout=30, trust_env=False).text
        except httpx.ConnectError:
            return ""

    def kickoff(self, crew: str, **inputs: object) -> str:
        """Start an execution; its id."""
        body = {"inputs": inputs}
        started = self.answer(f"/crews/{crew}/kickoff", body, token=self.crew_token(crew))
        found: str = started["kickoff_id"]
        return found

    def execution(self, crew: str, kickoff_id: str, wait: float = 0) -> Json:
        """How it stands; with `wait`, once it has ended, for which it has so many seconds."""
        path = f"/crews/{crew}/status/{kickoff_id}"

        def look(seconds: float) -> Json:
            return self.answer(f"{path}?wait={seconds:g}", token=self.crew_token(crew))

        def ended() -> Json | None:
            found = look(min(wait, 10))
            return found if found["state"] in ("SUCCESS", "FAILED") else None

        return until(f"{kickoff_id} has ended", ended, wait) if wait else look(0)


def commands(begin: str) -> str:
    """The document's block of commands that begins so."""
    (found,) = re.findall(rf"```sh\n({re.escape(begin)}.*?)```", DOCUMENT, flags=re.DOTALL)
    return str(found)


def now() -> str:
    """This moment as journalctl takes it."""
    return f"@{time.time():.6f}"


def start_portal() -> None:
    """Start the sandbox, as a service of its own."""
    run(
        *("systemd-run", "--unit=portal", "--collect", f"--working-directory={ROOT}", "-q"),
        *(sys.executable, "-m", "smartlinkd", "sandbox", "--port", str(PORTAL)),
    )
    portal = f"http://127.0.0.1:{PORTAL}/_sandbox/log"

    def answers() -> bool:
        try:
            return httpx.get(portal, timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    until("the sandbox answers", answers)


def status_of(pid: int) -> dict[str, str]:
    """/proc/PID/status."""
    text = Path(f"/proc/{pid}/status").read_text()
    return dict(re.findall(r"^(\w+):\s*(.*)$", text, flags=re.MULTILINE))


def namespace(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
