"""A supervisor's children: their specification, their state, and a snapshot of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any

import trio

from smartlinkd.supervision.actor import Queue
from smartlinkd.supervision.heartbeat import Heartbeat, WatchedLoop

StartFunction = Callable[[trio.TaskStatus[None]], Awaitable[None]]


class ChildState(StrEnum):
    """The state of a child."""

    DOWN = "down"  # not started yet, or ended
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for its next start
    STOPPING = "stopping"


@dataclass(frozen=True)
class ChildSpec:
    """A child's specification: its start, its watch and its stop.

    Attributes:
        run: one instance of the child. It calls `task_status.started()` when it serves; the next
            child starts then. Whether it returns or fails, it is restarted (OTP's "permanent").
        stop: asks `run` to return. Without it the child is cancelled at once.
        grace: seconds between `stop` and the cancellation.
        start_timeout: seconds until a start without `started()` has failed.
        mailbox: closed when the supervisor has stopped.
        heartbeats: of the child's loops.
        busy: seconds for which all slots of these loops may be taken.
        watched_loops: the loops of a child that is itself a supervisor.
    """

    name: str
    run: StartFunction
    stop: Callable[[], None] | None = None
    grace: float = 5.0
    start_timeout: float = 30.0
    mailbox: Queue[Any] | None = None
    heartbeats: tuple[Heartbeat, ...] = ()
    busy: float = 0.0
    watched_loops: Callable[[], list[WatchedLoop]] | None = None


@dataclass(frozen=True)
class ChildSnapshot:
    """A child's state, for people and monitors. `since` is UTC, `next_retry` seconds from now."""

    name: str
    state: ChildState
    since: datetime
    restarts: int
    last_error: str | None
    next_retry: float | None


@dataclass(eq=False)
class Child:
    """A child's spec and state. Only its supervisor changes it."""

    spec: ChildSpec
    since: datetime
    state: ChildState = ChildState.DOWN
    restarts: int = 0
    failures: int = 0  # in a row
    last_error: str | None = None
    started_at: float = 0.0
    retry_at: float = inf
    task: trio.lowlevel.Task | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)

    def watched_loops(self) -> Iterator[WatchedLoop]:
        """Yield the loops that have to show heartbeats now: none unless the child runs."""
        if self.state is not ChildState.RUNNING or self.ended.is_set():
            return
        if self.spec.watched_loops is not None:
            yield from self.spec.watched_loops()
        assert self.task is not None  # noqa: S101 - it has been since before its start
        for heartbeat in self.spec.heartbeats:
            name = f"{self.spec.name} {heartbeat.of}".rstrip()
            yield WatchedLoop(name, heartbeat, self.started_at, self.spec.busy, self.task)
