"""Executions as their clients know them, and checks of their statuses, order and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import trio

from tests.simulation.crews import CREWS, Script

STATES = {
    "pending": "PENDING",
    "running": "RUNNING",
    "waiting_for_human_input": "RUNNING",
    "completed": "SUCCESS",
    "error": "FAILED",
    "stopped": "FAILED",
    "timed_out": "FAILED",
    "interrupted": "FAILED",
}


@dataclass(eq=False)
class Execution:
    """An execution. Times are on trio's clock; `inf` until it has happened."""

    number: int
    crew: str
    script: Script
    token: str
    asked: float
    answered: float = inf
    id: str = ""
    stopped: bool = False
    webhooks: bool = False
    is_seen_running: bool = False
    """A client has seen it run. The worker of a later execution may start before its worker."""
    final: dict[str, Any] = field(default_factory=dict)
    seen_ended: float = inf

    @property
    def meta(self) -> str:
        return f"meta {self.number}"


class Executions:
    """All executions of a simulation. `fail` takes a description of what is wrong."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self.known: dict[str, Execution] = {}
        self.by_number: dict[int, Execution] = {}
        self._fail = fail
        self._first_start: dict[str, float] = {}
        """The start of the first worker of each execution, by its id."""

    def accepted(self, execution: Execution, kickoff_id: str) -> None:
        """Record the answer to a kickoff."""
        if execution.id:
            if execution.id != kickoff_id:
                self._fail(f"one key, two executions: {execution.id} and {kickoff_id}")
            return
        if kickoff_id in self.known:
            self._fail(f"the id of another execution was answered: {kickoff_id}")
        execution.id, execution.answered = kickoff_id, trio.current_time()
        self.known[kickoff_id] = execution
        started = self._first_start.get(kickoff_id)
        if started is not None:
            for other in self._of(execution.crew):
                if self._first_start.get(other.id, started) > started:
                    self._check_start_order(earlier=other, later=execution)

    def worker_started(self, crew: str, kickoff_id: str, running: int) -> None:
        """Check the start of a worker. `running` workers of that crew exist now."""
        most = CREWS[crew]["max_running"]
        if running > most:
            self._fail(f"{running} workers of crew {crew}, which may have {most}")
        if kickoff_id in self._first_start:
            return
        now = self._first_start[kickoff_id] = trio.current_time()
        this = self.known.get(kickoff_id)
        if this is not None:
            if this.final:
                self._fail(f"{kickoff_id} has ended, and is started: {this.final}")
            for other in self._of(crew):
                if self._first_start.get(other.id, now) < now:
                    self._check_start_order(earlier=this, later=other)

    def check_status(self, execution: Execution, body: dict[str, Any], *, is_healthy: bool) -> None:
        """Check a status. With `is_healthy` nothing has gone wrong since the kickoff."""
        if STATES.get(body["status"]) != body["state"] or body["kickoff_id"] != execution.id:
            self._fail(f"a wrong status of {execution.id}: {body}")
        if body["meta"] != execution.meta:
            self._fail(f"the status of {execution.number} has the meta of another: {body}")
        if execution.final:
            was, now = _immutable_fields(execution.final), _immutable_fields(body)
            if was != now:
                self._fail(f"{execution.id} had ended as {was}, and now it is {now}")
            return
        execution.is_seen_running |= body["state"] == "RUNNING"
        if body["state"] in ("SUCCESS", "FAILED"):
            execution.final, execution.seen_ended = body, trio.current_time()
            self._check_end(execution, body, is_healthy=is_healthy)

    def _check_end(self, execution: Execution, body: dict[str, Any], *, is_healthy: bool) -> None:
        result = execution.script.result
        if body["state"] == "SUCCESS" and body["result"] != result:
            self._fail(f"{execution.number} has the result {body['result']!r}, not {result!r}")
        if body["status"] == "stopped" and not execution.stopped:
            self._fail(f"{execution.number} was stopped, and nobody asked for that: {body}")
        if not isinstance(body["result"], str) or not body["finished_at"]:
            self._fail(f"an end without a result or a time: {body}")
        if (
            is_healthy
            and result is not None
            and not execution.stopped
            and body["state"] != "SUCCESS"
        ):
            self._fail(f"nothing is wrong, and yet {execution.number} failed: {body}")

    def _check_start_order(self, *, earlier: Execution, later: Execution) -> None:
        """Fail if `earlier`, which has started after `later`, had to be the first."""
        has_waited = earlier.answered < later.asked and not earlier.is_seen_running
        if has_waited and not earlier.final:
            self._fail(
                f"crew {later.crew}: execution {later.number}, asked for at {later.asked:.3f}, "
                f"started before {earlier.number}, answered at {earlier.answered:.3f}"
            )

    def _of(self, crew: str) -> list[Execution]:
        return [each for each in self.known.values() if each.crew == crew]


def _immutable_fields(body: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that never change after the end."""
    return {name: body[name] for name in ("state", "status", "result", "error", "finished_at")}
