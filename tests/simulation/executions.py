"""Executions, as those who kicked them off know them, and what the daemon owes for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """One. Times are on trio's clock."""

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
    """Its start has begun. Its worker may come later than that of an execution behind it."""
    final: dict[str, Any] = field(default_factory=dict)
    seen_ended: float = inf

    @property
    def meta(self) -> str:
        return f"meta {self.number}"


class Executions:
    """All of the world's. `broken` is told what is wrong."""

    def __init__(self, broken: Callable[[str], None]) -> None:
        self.known: dict[str, Execution] = {}
        self.by_number: dict[int, Execution] = {}
        self._broken = broken
        self._first_start: dict[str, float] = {}
        """Of two that start together, none is first."""

    def unended(self) -> Iterator[Execution]:
        return (each for each in self.known.values() if not each.final)

    def accepted(self, execution: Execution, kickoff_id: str) -> None:
        """Its kickoff was answered with this: it is known from now on."""
        if execution.id:
            if execution.id != kickoff_id:
                self._broken(f"one key, two executions: {execution.id} and {kickoff_id}")
            return
        if kickoff_id in self.known:
            self._broken(f"the id of another execution was answered: {kickoff_id}")
        execution.id, execution.answered = kickoff_id, trio.current_time()
        self.known[kickoff_id] = execution
        started = self._first_start.get(kickoff_id)
        if started is not None:
            for other in self._of(execution.crew):
                if self._first_start.get(other.id, started) > started:
                    self._check_turn(earlier=other, later=execution)

    def worker_started(self, crew: str, kickoff_id: str, running: int) -> None:
        """A worker has, and so many of that crew are there now."""
        most = CREWS[crew]["max_running"]
        if running > most:
            self._broken(f"{running} workers of crew {crew}, which may have {most}")
        if kickoff_id in self._first_start:
            return
        now = self._first_start[kickoff_id] = trio.current_time()
        this = self.known.get(kickoff_id)
        if this is not None:
            if this.final:
                self._broken(f"{kickoff_id} has ended, and is started: {this.final}")
            for other in self._of(crew):
                if self._first_start.get(other.id, now) < now:
                    self._check_turn(earlier=this, later=other)

    def seen(self, execution: Execution, body: dict[str, Any], *, fine: bool) -> None:
        """Its status. `fine` says that nothing has gone wrong since it was kicked off."""
        if STATES.get(body["status"]) != body["state"] or body["kickoff_id"] != execution.id:
            self._broken(f"no status of {execution.id}: {body}")
        if body["meta"] != execution.meta:
            self._broken(f"the status of {execution.number} has the meta of another: {body}")
        if execution.final:
            was, now = _lasting(execution.final), _lasting(body)
            if was != now:
                self._broken(f"{execution.id} had ended as {was}, and now it is {now}")
            return
        execution.is_seen_running |= body["state"] == "RUNNING"
        if body["state"] in ("SUCCESS", "FAILED"):
            execution.final, execution.seen_ended = body, trio.current_time()
            self._check_end(execution, body, fine=fine)

    def _check_end(self, execution: Execution, body: dict[str, Any], *, fine: bool) -> None:
        result = execution.script.result
        if body["state"] == "SUCCESS" and body["result"] != result:
            self._broken(f"{execution.number} has the result {body['result']!r}, not {result!r}")
        if body["status"] == "stopped" and not execution.stopped:
            self._broken(f"{execution.number} was stopped, and nobody asked for that: {body}")
        if not isinstance(body["result"], str) or not body["finished_at"]:
            self._broken(f"an end without a result or a time: {body}")
        if fine and result is not None and not execution.stopped and body["state"] != "SUCCESS":
            self._broken(f"nothing is wrong, and yet {execution.number} failed: {body}")

    def _check_turn(self, *, earlier: Execution, later: Execution) -> None:
        """`earlier` has started after `later`."""
        has_waited = earlier.answered < later.asked and not earlier.is_seen_running
        if has_waited and not earlier.final:
            self._broken(
                f"crew {later.crew}: execution {later.number}, asked for at {later.asked:.3f}, "
                f"started before {earlier.number}, answered at {earlier.answered:.3f}"
            )

    def _of(self, crew: str) -> list[Execution]:
        return [each for each in self.known.values() if each.crew == crew]


def _lasting(body: dict[str, Any]) -> dict[str, Any]:
    """What does not change any more once it has ended."""
    return {name: body[name] for name in ("state", "status", "result", "error", "finished_at")}
