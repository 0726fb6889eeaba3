"""A supervisor's child: what it is told of it, what it shows of it, and what it keeps of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Protocol

import trio

from smartlinkd.supervision.policy import Restart
from smartlinkd.supervision.pulse import Pulse, Vital

StartFunction = Callable[[trio.TaskStatus[None]], Awaitable[None]]


class State(StrEnum):
    """Where a child is in its life."""

    DOWN = "down"  # not started yet, or ended and not to be restarted
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # failed; the restart is due later
    STOPPING = "stopping"


class Closable(Protocol):
    """What a child leaves behind for its callers; `Mailbox` is one."""

    def close(self, why: str) -> None: ...


@dataclass(frozen=True)
class ChildSpec:
    """What a supervisor has to know of a child.

    `run(task_status)` is one incarnation: it calls `task_status.started()` when it serves, and the
    next child starts then. `stop`, where given, asks it to return; it has `grace` seconds for that
    and is cancelled then. Without `stop` it is cancelled at once. `mailbox` is closed when the
    child will not run again, or not before its supervisor is run again. A start that takes over
    `start_timeout` seconds has failed. `pulses` show whether its loops still come round; all its
    hands may be `busy` for so many seconds. `vitals` are those of a child that is itself a
    supervisor.
    """

    name: str
    run: StartFunction
    restart: Restart = Restart.PERMANENT
    stop: Callable[[], None] | None = None
    grace: float = 5.0
    start_timeout: float = 30.0
    mailbox: Closable | None = None
    pulses: tuple[Pulse, ...] = ()
    busy: float = 0.0
    vitals: Callable[[], list[Vital]] | None = None


@dataclass(frozen=True)
class ChildSnapshot:
    """One child, for people and monitors. Times are aware UTC; `next_retry` is in seconds."""

    name: str
    state: State
    since: datetime
    restarts: int
    last_error: str | None
    next_retry: float | None


@dataclass(eq=False)
class Child:
    """A child as its supervisor keeps track of it, who alone changes anything here."""

    spec: ChildSpec
    since: datetime
    state: State = State.DOWN
    restarts: int = 0
    failures: int = 0  # in a row
    last_error: str | None = None
    started_at: float = 0.0
    retry_at: float = inf
    task: trio.lowlevel.Task | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)

    def vitals(self) -> Iterator[Vital]:
        """What of it has to show signs of life now."""
        if self.state is not State.RUNNING or self.ended.is_set():
            return
        if self.spec.vitals is not None:
            yield from self.spec.vitals()
        assert self.task is not None  # noqa: S101 - it has been since before its start
        for pulse in self.spec.pulses:
            name = f"{self.spec.name} {pulse.of}".rstrip()
            yield Vital(name, pulse, self.started_at, self.spec.busy, self.task)
