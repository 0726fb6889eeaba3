"""A daemon process with both APIs, and clients that send raw bytes.

The daemon needs no browser, so it starts within a second. A stopped daemon is checked: exit code 0
and no error in its log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from smartlinkd.auth.passwords import hash_password
from tests.config_file import WITHOUT_BROWSER, Tables, write_config
from tests.e2e import conftest as e2e
from tests.e2e.conftest import PASSWORD, PATIENCE

SYNC_KEY = "sync-key-of-the-extension-0123456789"

Json = dict[str, Any]

CREWS: list[dict[str, object]] = [
    {
        "name": "alpha",
        "default": True,
        "bind": "127.0.0.1:0",
        "inputs": ["topic"],
        "users": ["ann", "bob"],
    },
    {"name": "beta", "users": ["ann"]},
]
WORKER = """
IFS= read -r inputs <&3
printf '{"type": "started", "total_tasks": 1}\\n{"type": "result", "output": "done"}\\n' >&3
"""


class Daemon(e2e.Daemon):
    """A running daemon."""

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    @property
    def log(self) -> str:
        return self.program.log.read_text()

    @property
    def own_url(self) -> str:
        """The own address of the crew `alpha`."""
        wanted = r'address of its own: (http://[0-9.:]+)"'
        return self.program.wait_for(wanted, self.program.log)[1]

    async def crew_token(self, crew: str, user: str = "", *, rotate: bool = False) -> str:
        path = "/api/crews/token/rotate" if rotate else "/api/crews/token"
        body = {"crew": crew, "user": user or None}
        answer = await self.ask("POST", path, body, token=await self.login())
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    async def document(self) -> Json:
        """Return the daemon's OpenAPI document."""
        found: Json = (await self.ask("GET", "/openapi.json")).json()
        return found

    async def send(self, data: bytes) -> bytes:
        """Send bytes and return the answer until the connection ends."""
        received = b""
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(data)
                    while part := await stream.receive_some(65536):
                        received += part
        return received

    def memory(self) -> int:
        """Return the daemon's resident memory in bytes."""
        status = Path(f"/proc/{self.program.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


Start = Callable[..., AbstractContextManager[Daemon]]


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Return a context manager: `with start(cookie={"open_to": []}) as daemon`; sections replace
    keys."""
    hashed = hash_password(PASSWORD)

    @contextmanager
    def started(**given: Mapping[str, object]) -> Iterator[Daemon]:
        folder = tmp_path_factory.mktemp("daemon")
        config = folder / "config.toml"
        write_config(config, configuration(folder, hashed), given)
        daemon = Daemon(config)
        try:
            yield daemon
        finally:
            code = daemon.program.stop()
        daemon.check_left_nothing(code)
        assert '"level": "error"' not in daemon.log, daemon.log

    return started


def configuration(folder: Path, hashed: str) -> Tables:
    command = ["/bin/sh", "-c", WORKER]
    return {
        "server": {"bind": "127.0.0.1:0"},
        "state": {"directory": str(folder / "state")},
        "auth": {"password_hash": hashed},
        "cookie": {"sync_key": SYNC_KEY},
        **WITHOUT_BROWSER,
        "crews": [{"runner": "command", "command": command, **crew} for crew in CREWS],
    }
