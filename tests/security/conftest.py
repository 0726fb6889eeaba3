"""A daemon process with both APIs, and clients that send raw bytes.

The daemon needs no browser, so it starts within a second. A stopped daemon is checked: exit code 0
and no error in its log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio

from smartlinkd.auth.passwords import hash_password
from tests.config_file import WITHOUT_BROWSER, Tables, write_config
from tests.e2e.conftest import PASSWORD, PATIENCE, TracedProgram

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


@dataclass
class Daemon:
    """A running daemon. Each request has its own connection."""

    program: TracedProgram
    url: str = ""
    own_url: str = ""
    """The own address of the crew `alpha`."""
    token: str = field(default="", repr=False)

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    @property
    def log(self) -> str:
        return self.program.log.read_text()

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        base: str = "",
        **headers: str,
    ) -> httpx.Response:
        """Send a request. A dict or list is sent as JSON. Names of headers are written with
        underscores."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        transport = httpx.AsyncHTTPTransport(verify=False)
        async with httpx.AsyncClient(
            base_url=base or self.url, transport=transport, trust_env=False, timeout=PATIENCE
        ) as client:
            return await client.request(method, path, json=body, headers=given)

    async def login(self) -> str:
        """Log in at the first call; return the session token."""
        if not self.token:
            answer = await self.ask("POST", "/api/auth/login", {"password": PASSWORD})
            assert answer.status_code == 200, answer.text
            self.token = str(answer.json()["token"])
        return self.token

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

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.program.process.pid}/fd").iterdir()))

    def stop(self) -> None:
        """Stop the daemon like a service manager, and check that it logged no error."""
        assert self.program.stop() == 0, self.log
        assert '"level": "error"' not in self.log, self.log
        assert '"exception"' not in self.log, self.log


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
        program = TracedProgram("serve", "--config", str(config), folder=folder)
        daemon = Daemon(program)
        try:
            daemon.url = program.wait_for(r'"serving on (http://[^"]+)"', program.log)[1]
            own = program.wait_for(r'address of its own: (http://[0-9.:]+)"', program.log)
            daemon.own_url = own[1]
            yield daemon
        finally:
            daemon.stop()

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
