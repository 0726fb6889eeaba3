"""A client with the token of a crew on a stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import trio

from tests.fakes.network import Json
from tests.fakes.puppets import Step
from tests.faults.sockets import SentRequest
from tests.faults.stage import POLL_INTERVAL, Stage

LONGEST_WAIT = 60.0
"""Seconds that one status request waits for the end."""


@dataclass
class Client:
    stage: Stage
    crew: str = "c"

    def ask(self, method: str, path: str, body: Json | None = None, **headers: str) -> SentRequest:
        """`Idempotency_Key="x"` is the header Idempotency-Key."""
        token = self.stage.tokens[self.crew]
        return self.stage.request(method, f"/crews/{self.crew}{path}", body, token=token, **headers)

    def kick_off(self, *script: Step, key: str = "", **more: Any) -> SentRequest:
        """Kick off a script; without steps, one that starts and completes."""
        body = {"inputs": {"script": list(script)} if script else {}, **more}
        headers = {"Idempotency_Key": key} if key else {}
        return self.ask("POST", "/kickoff", body, **headers)

    async def start(self, *script: Step, **more: Any) -> str:
        """Return the kickoff_id of an accepted kickoff."""
        return str((await self.kick_off(*script, **more).expect_ok())["kickoff_id"])

    async def get(self, path: str) -> Json:
        return await self.ask("GET", path).expect_ok()

    async def status(self, kickoff_id: str) -> Json:
        return await self.get(f"/status/{kickoff_id}")

    async def wait_status(self, kickoff_id: str, status: str, within: float) -> Json:
        found: Json = {}
        with trio.move_on_after(within):
            while found.get("status") != status:
                found = await self.status(kickoff_id)
                await trio.sleep(POLL_INTERVAL)
        assert found["status"] == status, found
        return found

    async def wait_ended(self, kickoff_id: str, within: float) -> Json:
        with trio.fail_after(within):
            while True:
                found = await self.get(f"/status/{kickoff_id}?wait={LONGEST_WAIT:g}")
                if found["finished_at"]:
                    return found
