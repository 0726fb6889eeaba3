"""The daemons that the rows measure, each a process of its own, configured by a file.

The owner is logged in. Settings of a row that differ from the defaults are in its `tables`.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx
import trio

from smartlinkd.auth.passwords import hash_password
from smartlinkd.browser.chromium import find_executable
from smartlinkd.sandbox.batch import Origins
from smartlinkd.sandbox.products import product_link, product_of
from tests.config_file import Tables, write_config
from tests.programs import PASSWORD, Program, must_disable_sandbox

RUNNER: Final = ("smartlinkd",)
PATIENCE: Final = 60.0
"""Seconds that a program has for whatever it is waited for."""
LOOK_EVERY: Final = 0.02


def new_folder() -> Path:
    """Return a new empty folder for a row. Its mode lets Chromium's user, another one, pass through
    it."""
    folder = Path(tempfile.mkdtemp(prefix="smartlinkd-bench-"))
    folder.chmod(0o711)
    return folder


@dataclass(frozen=True)
class Daemon:
    """A running daemon. `token` is a session token of its owner."""

    program: Program
    folder: Path
    url: str
    token: str

    @property
    def pid(self) -> int:
        return self.program.process.pid

    def client(self) -> httpx.Client:
        """Return an HTTP client of the owner; the caller closes it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send one request of the owner on a new connection; return the answer's JSON."""
        with self.client() as http:
            answer = http.request(method, path, json=body)
        return answer.raise_for_status().json()

    def crew_token(self, crew: str) -> str:
        return str(self.ask("POST", "/api/crews/token", {"crew": crew})["token"])


@contextmanager
def daemon(
    folder: Path,
    portal: Origins,
    tables: Tables | None = None,
    *,
    ready: bool = True,
    runner: Sequence[str] = RUNNER,
) -> Iterator[Daemon]:
    """Run a daemon that uses `portal`, in `folder` (which is created), and log in to it.

    `tables` override the settings that it needs anyway. With `ready`, wait until its browser is
    ready. `runner` is the module that runs the daemon, and words that come before the daemon's own.
    """
    folder.mkdir()
    program = start(folder, configure(folder, portal, tables), runner)
    try:
        url = address_of(program)
        login = httpx.post(
            f"{url}/api/auth/login", json={"password": PASSWORD}, timeout=PATIENCE, trust_env=False
        )
        served = Daemon(program, folder, url, login.raise_for_status().json()["token"])
        if ready:
            wait_until_ready(served)
        yield served
    finally:
        program.stop()


def configure(folder: Path, portal: Origins, tables: Tables | None = None) -> Path:
    """Write a daemon's configuration into its folder; return the file's path."""
    needed: Tables = {
        "server": {"bind": "127.0.0.1:0"},
        "state": {"directory": str(folder / "state")},
        "auth": {"password_hash": _password_hash()},
        "browser": {"no_sandbox": unsandboxed()},
        "marketplace": {
            "portal_url": portal.portal,
            "shop_url": portal.shop,
            "short_urls": [portal.short],
        },
    }
    config = folder / "config.toml"
    write_config(config, needed, tables or {})
    return config


def start(folder: Path, config: Path, runner: Sequence[str] = RUNNER) -> Program:
    """Start the daemon's process without waiting for it."""
    words = (*runner, "serve", "--config", str(config))
    return Program(*words, folder=folder, log=folder / "log")


def address_of(program: Program) -> str:
    """Return the daemon's address as soon as it serves. Raises `NotStarted`."""
    return program.wait_for(r'"serving on (http://[0-9.:]+)"', program.log)[1]


def wait_until_ready(served: Daemon) -> None:
    """Wait until the daemon reports that its browser is ready. Raises `TimeoutError`."""
    with served.client() as http:
        wait_until(lambda: http.get("/api/health").json()["browserReady"], served.program.log)


def wait_until(met: Callable[[], object], log: Path, *, every: float = LOOK_EVERY) -> None:
    """Poll `met` every `every` seconds until it is true.

    Raises `TimeoutError` with the end of the program's log.
    """
    deadline = time.monotonic() + PATIENCE
    while not met():
        if time.monotonic() > deadline:
            told = log.read_text(encoding="utf-8")[-2000:] if log.exists() else ""
            raise TimeoutError(f"nothing within {PATIENCE:g} s: {told}")
        time.sleep(every)  # another program's state can only be polled


def ask_portal(portal: Origins, method: str, path: str, body: object = None) -> Any:
    """Call a switch of the sandbox: `delay` with `{"submit_ms": n}`, `log`, …"""
    url = f"{portal.portal}/_sandbox/{path}"
    answer = httpx.request(method, url, json=body, timeout=PATIENCE, trust_env=False)
    return answer.raise_for_status().json()


def link(portal: Origins, item: int) -> str:
    """Return an item's canonical link. Numbers below 900 000 000 have no special meaning."""
    return product_link(product_of(item), portal.shop)


def chromium() -> Path:
    """Return the path of the Chromium that the daemon uses."""
    return find_executable(None)


def free_port() -> int:
    """Return a port at which nobody listens at the moment."""
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return int(trying.getsockname()[1])


@cache
def unsandboxed() -> bool:
    """True if Chromium starts on this machine only without its sandbox."""
    return trio.run(must_disable_sandbox)


@cache
def _password_hash() -> str:
    return hash_password(PASSWORD)
