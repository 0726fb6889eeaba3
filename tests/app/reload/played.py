"""A daemon that is sent SIGHUP: the tree on a file of its configuration, and its client."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from smartlinkd.admin.control_socket import call
from smartlinkd.app import tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.config import load
from smartlinkd.logs import LogEvent
from smartlinkd.systemd.environment import NO_SYSTEMD, SystemdEnvironment
from tests.config_file import WITHOUT_BROWSER, Tables, write_config

PATIENCE = 20.0  # seconds; whatever takes longer hangs
HASH, OTHER_HASH = hash_password("correct horse"), hash_password("open barley")
DONE = """printf '{"type":"started"}\\n{"type":"result","output":"done"}\\n' >&3"""
WAIT = """printf '{"type":"started"}\\n' >&3; read given <&3; read stop <&3"""
ENDS = {LogEvent.CONFIG_RELOADED, LogEvent.CONFIG_REFUSED}
"""The events that are logged at the end of a reload."""


def crew(name: str, script: str = DONE, **more: object) -> dict[str, object]:
    return {"name": name, "runner": "command", "command": ["/bin/sh", "-c", script], **more}


class Daemon:
    """The tree on a file of its configuration, and its client."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.folder = folder
        self.file = folder / "config.toml"
        self.url = ""
        self.client = httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE)
        self._caplog = caplog

    def write(self, *crews: dict[str, object], **sections: dict[str, object]) -> None:
        tables: Tables = {
            "server": {"bind": "127.0.0.1:0"},
            "state": {"directory": str(self.folder / "state")},
            "auth": {"password_hash": HASH},
            **WITHOUT_BROWSER,
        }
        write_config(self.file, tables, sections, {"crews": crews})

    async def hears(self, words: str) -> None:
        with trio.fail_after(PATIENCE):
            while words not in self._caplog.text:  # noqa: ASYNC110 - a log tells nobody
                await trio.sleep(0.01)

    async def hang_up(self) -> str:
        """Send SIGHUP; return the levels and texts that are logged until the reload has ended."""
        before = len(self._caplog.records)
        os.kill(os.getpid(), signal.SIGHUP)
        with trio.fail_after(PATIENCE):
            while True:
                said = self._caplog.records[before:]
                if any(vars(each).get("event") in ENDS for each in said):
                    return "\n".join(f"{each.levelname}: {each.getMessage()}" for each in said)
                await trio.sleep(0.01)

    async def get(self, path: str, token: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await self.client.get(self.url + path, headers=headers)

    async def login(self, password: str = "correct horse") -> httpx.Response:
        return await self.client.post(f"{self.url}/api/auth/login", json={"password": password})

    async def token(self, crew: str, user: str = "") -> str:
        asked = {"name": crew, **({"user": user} if user else {})}
        told = await call(self.folder / "state", "crew token", asked)
        assert told["ok"], told
        return str(told["token"])

    async def kickoff(self, crew: str) -> tuple[str, str]:
        token = await self.token(crew)
        answer = await self.client.post(
            f"{self.url}/crews/{crew}/kickoff",
            json={"inputs": {}},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200, answer.text
        return token, str(answer.json()["kickoff_id"])

    async def end_of(self, crew: str, token: str, kickoff_id: str) -> Any:
        with trio.fail_after(PATIENCE):
            while True:
                answer = await self.get(f"/crews/{crew}/status/{kickoff_id}?wait=5", token)
                found = answer.json()
                if found["state"] not in ("PENDING", "STARTED", "RUNNING"):
                    return found


@asynccontextmanager
async def running(
    daemon: Daemon, environment: SystemdEnvironment = NO_SYSTEMD
) -> AsyncIterator[None]:
    reread = partial(load, daemon.file, {})
    async with daemon.client, trio.open_nursery() as nursery:
        urls = await nursery.start(tree.serve, reread(), environment, reread)
        daemon.url = urls[0]
        yield
        nursery.cancel_scope.cancel()
