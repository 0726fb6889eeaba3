"""Who is told by webhooks: servers that come and go, and what each call to them must be."""

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
"""Of all behaviours the one that ends a call for good."""
HOSTS = ("192.0.2.7", "192.0.2.8")

Place = tuple[str, str]
"""An execution's id, and the path that is called for it."""


class Watched(Receiver):
    """A server whose calls are looked at as they come. `broken` is told what is wrong."""

    executions: Executions
    broken: Callable[[str], None]

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.settled: set[str] = set()
        """Ids of calls that were taken, or refused for good."""
        self.told: set[str] = set()
        """Executions whose end was."""
        self._last: dict[Place, int] = defaultdict(int)

    async def behave(self, stream: trio.SocketStream) -> bool:
        call = self.calls.pop()
        self.taken.clear()  # by now it would be a day's
        self._look_at(call)
        refuses = self.usual is REFUSED
        taken = await super().behave(stream)
        if taken or refuses or self.usual is REFUSED:
            self.settled.add(call.id)
            if call.path.startswith("/crew/"):
                self.told.add(call.id.split("_")[1])
        return taken

    def _look_at(self, call: Call) -> None:
        _, execution_id, number = call.id.split("_")
        place = (execution_id, call.path)
        last = self._last[place]
        if int(number) < last:
            self.broken(f"call {call.id} to {call.path} came after number {last}")
        before = f"msg_{execution_id}_{last}"
        if int(number) > last > 0 and before not in self.settled:
            self.broken(f"call {call.id} to {call.path} came while {before} was not yet taken")
        self._last[place] = int(number)
        self._check_body(call, execution_id)

    def _check_body(self, call: Call, execution_id: str) -> None:
        body = json.loads(call.content)
        kind, number = call.path.strip("/").split("/")
        execution = self.executions.by_number[int(number)]
        said = body["events"][0] if kind == "stream" else body
        told = said.get("execution_id", said.get("kickoff_id"))
        if told != execution_id or execution.id not in ("", execution_id):
            self.broken(f"{call.path} was told of {told}, which is not {execution.id}")
        if kind != "stream" and body["meta"] != execution.meta:
            self.broken(f"{call.path} was told the meta of another: {body}")
        if kind == "crew":
            self._check_end(execution, body)

    def _check_end(self, execution: Execution, body: dict[str, Any]) -> None:
        if not execution.final:
            return
        good = execution.final["state"] == "SUCCESS"
        if body["result"] != (execution.final["result"] if good else None):
            self.broken(f"{execution.number} ended as {execution.final}, and was told as {body}")


def fields(number: int) -> dict[str, Any]:
    """Of a kickoff whose events are told, all of them and by kind."""
    one, other = (f"http://{host}" for host in HOSTS)
    return {
        "taskWebhookUrl": f"{one}/task/{number}",
        "crewWebhookUrl": f"{other}/crew/{number}",
        "webhooks": {"events": [], "url": f"{one}/stream/{number}"},
    }
