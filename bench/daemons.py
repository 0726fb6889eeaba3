"""The programs that a row works with: a daemon as its owner runs it; its portal, a sandbox, is that
of `tests.programs`.

Each is a process of its own, so that the one who measures, the daemon and the portal do not share
an interpreter. The daemon is configured by a file and logged in to; what a row needs otherwise than
by default stands in its `tables`, for the reader of the row to see.
"""

from __future__ import annotations

import os
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
from tests.programs import PASSWORD, Program, needs_no_sandbox

RUNNER: Final = ("smartlinkd",)
PATIENCE: Final = 60.0
"""Seconds for whatever a program is waited for to do."""
LOOK_EVERY: Final = 0.02


def new_folder() -> Path:
    """An empty one, for all of a run. Chromium's user, who is another one, may go through it."""
    folder = Path(tempfile.mkdtemp(prefix="smartlinkd-bench-"))
    folder.chmod(0o711)
    return folder


@dataclass(frozen=True)
class Daemon:
    """A daemon that runs. `token` is of a session of its owner's."""

    program: Program
    folder: Path
    url: str
    token: str

    @property
    def pid(self) -> int:
        return self.program.process.pid

    def client(self) -> httpx.Client:
        """A client of the owner's; close it."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One question of the owner's, on a connection of its own."""
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
    """A daemon that works with `portal`, in `folder` (which it makes), logged in to.

    `tables` are laid over what it needs anyway. With `ready` its browser is there, too. `runner`
    is the module that runs it, and words that this one takes before the daemon's own.
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
            until_ready(served)
        yield served
    finally:
        program.stop()


def configure(folder: Path, portal: Origins, tables: Tables | None = None) -> Path:
    """Write the configuration of a daemon into its folder; where it is."""
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
    """The daemon's process, just begun."""
    words = (*runner, "serve", "--config", str(config))
    return Program(*words, folder=folder, log=folder / "log")


def address_of(program: Program) -> str:
    """Where it serves, once it does. Raises `NotStarted`."""
    return program.wait_for(r'"serving on (http://[0-9.:]+)"', program.log)[1]


def until_ready(served: Daemon) -> None:
    """Wait until it says that its browser is ready. Raises `TimeoutError`."""
    with served.client() as http:
        until(lambda: http.get("/api/health").json()["browserReady"], served.program.log)


def until(met: Callable[[], object], log: Path, *, every: float = LOOK_EVERY) -> None:
    """Wait until it is so; a program of others tells nobody, so it is looked at every so often.

    Raises `TimeoutError` with the end of the program's log.
    """
    deadline = time.monotonic() + PATIENCE
    while not met():
        if time.monotonic() > deadline:
            told = log.read_text(encoding="utf-8")[-2000:] if log.exists() else ""
            raise TimeoutError(f"nothing within {PATIENCE:g} s: {told}")
        time.sleep(every)  # other programs tell nobody when they are done


def ask_portal(portal: Origins, method: str, path: str, body: object = None) -> Any:
    """One of the sandbox's switches: `delay` with `{"submit_ms": n}`, `log?last=n`, …"""
    url = f"{portal.portal}/_sandbox/{path}"
    answer = httpx.request(method, url, json=body, timeout=PATIENCE, trust_env=False)
    return answer.raise_for_status().json()


def link(portal: Origins, item: int) -> str:
    """An item's canonical link. Any number is an item; those below 500 000 000 have no meaning."""
    return product_link(product_of(item), portal.shop)


def chromium() -> Path:
    """The Chromium that the daemon uses."""
    return find_executable(None)


def free_port() -> int:
    """One at which nobody listens at the moment."""
    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return int(trying.getsockname()[1])


def browser_flags() -> list[str]:
    """What a peer's Chromium needs on this machine: nothing, or, as the daemon's, no sandbox.

    As root it has none either way: the daemon starts its own as another user, a peer does not.
    """
    return ["--no-sandbox"] if os.geteuid() == 0 or unsandboxed() else []


@cache
def unsandboxed() -> bool:
    """Whether Chromium starts here only without its sandbox."""
    return trio.run(needs_no_sandbox)


@cache
def _password_hash() -> str:
    return hash_password(PASSWORD)
