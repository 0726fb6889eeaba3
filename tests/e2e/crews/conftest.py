"""Crews of a running daemon: workers in sh, their clients, and a receiver for webhooks.

No test here converts links, so these daemons have no browser and start within a second.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from tests.config_file import WITHOUT_BROWSER
from tests.fakes.receiver import Receiver as Receiver  # noqa: PLC0414 - the contract takes it from here
from tests.fakes.receiver import open_receiver

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Running

Json = dict[str, Any]
Table = Mapping[str, object]

LONGEST_WAIT = 45
"""Seconds for an execution to end. Only a failing test waits that long."""

SAY = """\
say() { printf '%s\\n' "$1" >&3; }
IFS= read -r inputs <&3
say '{"type": "started", "total_tasks": 1}'
say '{"type": "task_started", "task_id": "only", "name": "Only"}'
"""
DONE = """\
say '{"type": "task_completed", "task_id": "only", "output": "done"}'
say '{"type": "result", "output": "done"}'
"""


def crew(
    name: str, *, first: str = "", gate: object = None, script: str = DONE, **more: object
) -> Table:
    """Return a `[[crews]]` table with a worker in sh.

    The worker runs `first`, starts its only task, waits for a file at `gate` if one is given, and
    runs `script`. Descriptor 3 is its channel to the daemon, and `say` writes to it.
    """
    wait = "" if gate is None else f"until [ -e '{gate}' ]; do sleep 0.02; done"
    lines = "\n".join((first, SAY, wait, script))
    words = ["/bin/sh", "-c", lines]
    return {"name": name, "runner": "command", "command": words, **more}


@dataclass
class Client:
    """A client with a crew's token."""

    daemon: Daemon
    crew: str
    token: str

    async def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> httpx.Response:
        """Send a request. `Idempotency_Key="x"` is sent as the header Idempotency-Key."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = f"/crews/{self.crew}{path}"
        return await self.daemon.ask(method, path, body, token=self.token, headers=named)

    async def get(self, path: str) -> Json:
        """Return the JSON of an answer with status 200."""
        answer = await self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def kick_off(self, inputs: Json | None = None, *, key: str = "", **more: Any) -> str:
        """Kick off an execution and return its kickoff_id."""
        headers = {"Idempotency_Key": key} if key else {}
        answer = await self.ask("POST", "/kickoff", {"inputs": inputs or {}, **more}, **headers)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["kickoff_id"])

    async def status(self, kickoff_id: str) -> Json:
        return await self.get(f"/status/{kickoff_id}")

    async def works(self, kickoff_id: str) -> bool:
        """True while the execution has a current task."""
        return bool((await self.status(kickoff_id))["current_task"])

    async def ended(self, kickoff_id: str) -> Json:
        """Wait for the execution's end and return its status."""
        with trio.fail_after(LONGEST_WAIT):
            while True:
                found = await self.get(f"/status/{kickoff_id}?wait={LONGEST_WAIT}")
                if found["state"] in ("SUCCESS", "FAILED"):
                    return found

    async def stop(self, kickoff_id: str) -> None:
        answer = await self.ask("POST", f"/stop/{kickoff_id}")
        assert answer.status_code == 200, answer.text

    async def ids(self) -> list[str]:
        """Return the ids of all executions that the token may see, oldest first."""
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self.get(f"/executions?limit=100{cursor and f'&cursor={cursor}'}")
            found += [each["kickoff_id"] for each in page["executions"]]
            cursor = page["next_cursor"]
        return found[::-1]

    async def events(self, kickoff_id: str) -> list[Json]:
        """Return the data of all events of an ended execution."""
        answer = await self.ask("GET", f"/events/{kickoff_id}")
        assert answer.status_code == 200, answer.text
        lines = answer.text.splitlines()
        return [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: ")]


Meet = Callable[..., Awaitable[Client]]


async def client_of(daemon: Daemon, crew: str, *, user: str = "") -> Client:
    """Return a client with the crew's organization token, or with a user's. The token joins the
    daemon's secrets."""
    body = {"crew": crew, "user": user or None}
    answer = await daemon.ask("POST", "/api/crews/token", body, token=await daemon.login())
    assert answer.status_code == 200, answer.text
    token = answer.json()["token"]
    daemon.secrets.add(token)
    return Client(daemon, crew, token)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A webhook receiver on loopback that accepts every call."""
    async with open_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="session")
def meet() -> Meet:
    """Return a function that makes a client: `await meet(daemon, "crew", user="ann")`."""
    return client_of


Employing = Callable[..., AbstractContextManager["Daemon"]]


@pytest.fixture(scope="session")
def employing(running: Running) -> Employing:
    """Return a context manager that runs a daemon without a browser.

    `with employing({"first": {}, "second": {"queue": 3}}) as daemon`: the keys are the crews'
    names, the values arguments of `crew`. Webhooks may call loopback addresses.
    """

    def employing(
        crews: Mapping[str, Mapping[str, Any]], **more: Table
    ) -> AbstractContextManager[Daemon]:
        tables: dict[str, Table] = {
            **WITHOUT_BROWSER,
            "webhooks": {"allow": ["127.0.0.0/8"]},
        }
        for name, keys in more.items():
            tables[name] = {**tables.get(name, {}), **keys}
        return running(**tables, crews=[crew(name, **keys) for name, keys in crews.items()])

    return employing
