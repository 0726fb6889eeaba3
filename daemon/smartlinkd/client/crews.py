"""The client of one crew: kick off, follow, wait, stop."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final
from urllib.parse import quote

import httpx
from pydantic import BaseModel, JsonValue

from smartlinkd.api.crews.schemas import (
    ExecutionsResponse,
    InputsResponse,
    KickoffResponse,
    StatusResponse,
)
from smartlinkd.client.connection import Connection
from smartlinkd.client.errors import ApiFailure, ClientError, Unreachable

SILENCE_S: Final = 60.0
"""The stream of events has a comment every 15 s."""
WAIT_S: Final = 50
LOST_S: Final = 120.0
"""For following an execution again after a lost connection."""
ENDED: Final = ("SUCCESS", "FAILED")
LAST_EVENTS: Final = ("crew_kickoff_completed", "crew_kickoff_failed")


class CrewEvent(BaseModel):
    """An event of an execution (docs/webhooks.md)."""

    id: int
    type: str
    timestamp: datetime
    data: dict[str, JsonValue]


class CrewClient:
    """One crew of a daemon. Its methods raise `ClientError`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self.name = name
        self._base = f"/crews/{quote(name, safe='')}"

    def inputs(self) -> list[str]:
        """Return the names of the crew's inputs."""
        return self._connection.get(f"{self._base}/inputs", InputsResponse).inputs

    def kickoff(
        self, inputs: Mapping[str, JsonValue], *, idempotency_key: str | None = None
    ) -> str:
        """Start an execution and return its id. A lost answer starts no second one."""
        return self._connection.post(
            f"{self._base}/kickoff",
            {"inputs": dict(inputs)},
            KickoffResponse,
            is_safe=True,
            headers={"Idempotency-Key": idempotency_key or str(uuid.uuid4())},
        ).kickoff_id

    def status(self, kickoff_id: str, *, wait_s: float = 0) -> StatusResponse:
        """Return an execution's state.

        Args:
            wait_s: seconds, at most 60, that the daemon waits for another `state`.
        """
        path = f"{self._base}/status/{quote(kickoff_id, safe='')}"
        return self._connection.get(path, StatusResponse, {"wait": wait_s or None})

    def wait(self, kickoff_id: str) -> StatusResponse:
        """Return the execution's state when it has ended."""
        while (status := self.status(kickoff_id, wait_s=WAIT_S)).state not in ENDED:
            pass
        return status

    def events(self, kickoff_id: str) -> Iterator[CrewEvent]:
        """Yield all events, until the execution has ended.

        A lost connection is opened again, and no event is missed or repeated.
        """
        path = f"{self._base}/events/{quote(kickoff_id, safe='')}"
        after = 0
        lost_since: float | None = None
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
            try:
                with self._connection.stream(
                    path, headers=headers, silence_s=SILENCE_S
                ) as response:
                    for event in _read_events(response):
                        after, lost_since = event.id, None
                        yield event
                        if event.type in LAST_EVENTS:
                            return
            except (Unreachable, ApiFailure) as failure:
                if isinstance(failure, ApiFailure) and failure.retry_after_s is None:
                    raise
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LOST_S:
                    raise
            time.sleep(1)

    def executions(
        self, *, state: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> ExecutionsResponse:
        """Return a page of executions, the newest first."""
        query = {"limit": limit, "state": state, "cursor": cursor}
        return self._connection.get(f"{self._base}/executions", ExecutionsResponse, query)

    def stop(self, kickoff_id: str) -> None:
        """Stop an execution."""
        path = f"{self._base}/stop/{quote(kickoff_id, safe='')}"
        self._connection.send("POST", path, body={}, is_safe=False)


def _read_events(response: httpx.Response) -> Iterator[CrewEvent]:
    """Yield the whole events of a stream (HTML standard, section 9.2).

    The daemon sends `id` and one line of `data`. An event that is cut off has no empty line.

    Raises:
        ClientError: an event is not understood.
    """
    number, data = "", ""
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if name == "id":
            number = value
        elif name == "data":
            data = value
        elif not line and data:
            try:
                yield CrewEvent.model_validate({**json.loads(data), "id": number})
            except ValueError:
                raise ClientError(
                    "an event of the execution is not understood; check the address"
                ) from None
            data = ""
