"""Helpers for the machine in the container: `systemctl`, `journalctl`, HTTP."""

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
VERSIONS = Path("/opt/smartlinkd")
CREW = "quick"
"""A crew that has its own address and its own socket unit in some tests."""
CREW_URL = "http://127.0.0.1:9000"
CREW_SOCKET = Path("/etc/systemd/system/smartlinkd-research.socket")
PATIENCE = 40.0
"""Seconds in which an expected event has to happen."""
LOOK_EVERY = 0.05

Json = dict[str, Any]
T = TypeVar("T")


def run(*command: str, cwd: Path = ROOT, check: bool = True) -> str:
    """Run a command, and return its stdout and stderr. With `check` it has to exit with 0."""
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


def until(what: str, probe: Callable[[], T | None], within: float = PATIENCE) -> T:
    """Wait until `probe` returns something true, and return that. `what` is for the error."""
    deadline = time.monotonic() + within
    while not (seen := probe()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(LOOK_EVERY)
    return seen


@dataclass
class Service:
    """A service of the daemon, and its HTTP API."""

    name: str = "smartlinkd"
    url: str = "http://127.0.0.1:8787"
    install_output: str = ""
    _tokens: dict[str, str] = field(default_factory=dict)

    @property
    def configuration(self) -> Path:
        return Path("/etc", self.name, "config.toml")

    @property
    def state(self) -> Path:
        """The state directory. /var/lib/NAME is a link to it."""
        return Path("/var/lib/private", self.name)

    # systemd

    def show(self, key: str) -> str:
        return run("systemctl", "show", "--value", "-p", key, self.name).strip()

    @property
    def pid(self) -> int:
        return int(self.show("MainPID"))

    @property
    def restarts(self) -> int:
        """The number of automatic restarts."""
        return int(self.show("NRestarts"))

    def is_active(self) -> bool:
        return self.show("ActiveState") == "active"

    def processes(self) -> dict[int, str]:
        """Return the command lines of all processes of the service by process id."""
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
                        continue  # the process has ended
                    found[int(pid)] = command.replace(b"\0", b" ").decode()
        return found

    def journal(self, *options: str, since: str = "") -> list[Json]:
        """Return the service's journal records since a time, the oldest first."""
        begin = [f"--since={since}"] if since else []
        output = run("journalctl", "-u", self.name, "-o", "json", "--no-pager", *begin, *options)
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def systemctl(self, verb: str) -> None:
        run("systemctl", verb, f"{self.name}.service")

    def wait_for_restart(self, before: int) -> int:
        """Wait until the service has another main process than `before`. Return its id."""

        def other() -> int | None:
            return self.pid if self.pid not in (0, before) and self.is_active() else None

        return until("the service is restarted", other)

    def wait_until_ready(self, within: float = PATIENCE) -> None:
        until("the browser is ready", lambda: self.health().get("browserReady"), within)

    def configure(self, text: str) -> None:
        """Append `text` to the configuration, instead of the text that was appended before."""
        mark = "\n# What the tests need.\n"
        own, _, _ = self.configuration.read_text().partition(mark)
        self.configuration.write_text(f"{own}{mark}{text}")

    @contextmanager
    def drop_in(self, text: str) -> Iterator[None]:
        """Add a drop-in to the unit, and remove it after the block."""
        path = Path(f"/etc/systemd/system/{self.name}.service.d/test.conf")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        run("systemctl", "daemon-reload")
        try:
            yield
        finally:
            path.unlink()
            run("systemctl", "daemon-reload")

    # The API

    def health(self) -> Json:
        """Return the answer of /api/health; empty when nobody answers."""
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
        """Send a POST of `body`, or a GET without a body."""
        given = dict(headers or {})
        if token:
            given["Authorization"] = f"Bearer {token}"
        method = "GET" if body is None else "POST"
        return httpx.request(
            method, self.url + path, json=body, headers=given, timeout=PATIENCE, trust_env=False
        )

    def answer(self, path: str, body: Json | None = None, *, token: str = "") -> Json:
        """Send a request that has to succeed, and return the body of the answer."""
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
        """Return the stored cookie; None when there is none."""
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

    def clear_tokens(self) -> None:
        """Forget the crews' tokens, which are other ones after a new installation."""
        self._tokens.clear()

    def crew_health(self) -> str:
        """Return the answer at the crew's own address; "" when nobody listens there."""
        bearer = {"Authorization": f"Bearer {self.crew_token(CREW)}"}
        try:
            return httpx.get(f"{CREW_URL}/", headers=bearer, timeout=30, trust_env=False).text
        except httpx.ConnectError:
            return ""

    def kickoff(self, crew: str, **inputs: object) -> str:
        """Start an execution, and return its id."""
        body = {"inputs": inputs}
        started = self.answer(f"/crews/{crew}/kickoff", body, token=self.crew_token(crew))
        found: str = started["kickoff_id"]
        return found

    def execution(self, crew: str, kickoff_id: str, wait: float = 0) -> Json:
        """Return an execution's status. With `wait` it has to end within so many seconds."""
        path = f"/crews/{crew}/status/{kickoff_id}"

        def probe(seconds: float) -> Json:
            return self.answer(f"{path}?wait={seconds:g}", token=self.crew_token(crew))

        def ended() -> Json | None:
            found = probe(min(wait, 10))
            return found if found["state"] in ("SUCCESS", "FAILED") else None

        return until(f"{kickoff_id} has ended", ended, wait) if wait else probe(0)


def commands(begin: str) -> str:
    """Return the block of commands in docs/operating.md that starts with `begin`."""
    (found,) = re.findall(rf"```sh\n({re.escape(begin)}.*?)```", DOCUMENT, flags=re.DOTALL)
    return str(found)


def now() -> str:
    """Return the time now, as an option of journalctl."""
    return f"@{time.time():.6f}"


def start_portal() -> None:
    """Start the sandbox as a service."""
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
    """Return the fields of /proc/PID/status."""
    text = Path(f"/proc/{pid}/status").read_text()
    return dict(re.findall(r"^(\w+):\s*(.*)$", text, flags=re.MULTILINE))


def namespace(pid: int, kind: str) -> str:
    return str(Path(f"/proc/{pid}/ns/{kind}").readlink())


def process_exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
