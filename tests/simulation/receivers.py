"""Receivers of webhook calls, which check the order and the body of each call."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import trio

from tests.fakes.internet import Receiver, answer
from tests.fakes.receiver import Call
from tests.simulation.executions import Execution, Executions

REFUSED = answer(404)
"""An answer after which the daemon gives a call up."""
HOSTS = ("192.0.2.7", "192.0.2.8")

Place = tuple[str, str]
"""An execution's id, and the path of its calls."""


class CheckedReceiver(Receiver):
    """A receiver that checks each call. `fail` takes a description of what is wrong."""

    def __init__(self, host: str, executions: Executions, fail: Callable[[str], None]) -> None:
        super().__init__(host)
        self.executions = executions
        self.fail = fail
        self.settled: set[str] = set()
        """Ids of calls that were accepted, or refused for good."""
        self.notified: set[str] = set()
        """Executions whose call for the end is settled."""
        self._last: dict[Place, int] = defaultdict(int)

    async def behave(self, stream: trio.SocketStream) -> bool:
        call = self.calls.pop()
        self.taken.clear()  # it would grow for the whole simulation
        self._check_call(call)
        refuses = self.usual is REFUSED
        taken = await super().behave(stream)
        if taken or refuses or self.usual is REFUSED:
            self.settled.add(call.id)
            if call.path.startswith("/crew/"):
                self.notified.add(call.id.split("_")[1])
        return taken

    def _check_call(self, call: Call) -> None:
        _, execution_id, number = call.id.split("_")
        place = (execution_id, call.path)
        last = self._last[place]
        if int(number) < last:
            self.fail(f"call {call.id} to {call.path} came after number {last}")
        before = f"msg_{execution_id}_{last}"
        if int(number) > last > 0 and before not in self.settled:
            self.fail(f"call {call.id} to {call.path} came before {before} was settled")
        self._last[place] = int(number)
        self._check_body(call, execution_id)

    def _check_body(self, call: Call, execution_id: str) -> None:
        body = json.loads(call.content)
        kind, number = call.path.strip("/").split("/")
        execution = self.executions.by_number[int(number)]
        event = body["events"][0] if kind == "stream" else body
        named = event.get("execution_id", event.get("kickoff_id"))
        if named != execution_id or execution.id not in ("", execution_id):
            self.fail(f"{call.path} got a call for {named}, not for {execution.id}")
        if kind != "stream" and body["meta"] != execution.meta:
            self.fail(f"{call.path} got the meta of another execution: {body}")
        if kind == "crew":
            self._check_end(execution, body)

    def _check_end(self, execution: Execution, body: dict[str, Any]) -> None:
        if not execution.final:
            return
        good = execution.final["state"] == "SUCCESS"
        if body["result"] != (execution.final["result"] if good else None):
            self.fail(
                f"{execution.number} ended as {execution.final}, and its webhook call says {body}"
            )


def webhook_fields(number: int) -> dict[str, Any]:
    """Return the fields of a kickoff with all kinds of webhooks."""
    one, other = (f"http://{host}" for host in HOSTS)
    return {
        "taskWebhookUrl": f"{one}/task/{number}",
        "crewWebhookUrl": f"{other}/crew/{number}",
        "webhooks": {"events": [], "url": f"{one}/stream/{number}"},
    }
