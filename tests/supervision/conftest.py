"""A child that a test controls, and a supervisor that runs in the background."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from smartlinkd.errors import Refused
from smartlinkd.supervision.actor import Queue
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.supervisor import Supervisor


class Child:
    """A supervised child. It records its life in `events`.

    `before` runs before it serves, `tidy` when it ends. `fail` and `finish` end the instance that
    serves. After `stop` it returns within `stop_takes` seconds.
    """

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events
        self.instances = 0
        self.alive = 0
        self.serving = False
        self.start_times: list[float] = []
        self.before: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.tidy: Callable[[], None] = lambda: None
        self.stop_takes = 0.0
        self._told = trio.Event()
        self._error: BaseException | None = None
        self._asked = False

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        self._told, self._error, self._asked = trio.Event(), None, False
        self.instances += 1
        self.alive += 1
        self.start_times.append(trio.current_time())
        self.events.append(f"{self.name} starts")
        try:
            await self.before()
            self.serving = True
            task_status.started()
            self.events.append(f"{self.name} serves")
            await self._told.wait()
            if self._error is not None:
                raise self._error
            if self._asked:
                await trio.sleep(self.stop_takes)
        finally:
            self.serving = False
            self.alive -= 1
            self.events.append(f"{self.name} ends")
            self.tidy()

    def fail(self, error: BaseException | None = None) -> None:
        self._error = error or ValueError("broken")
        self._told.set()

    def finish(self) -> None:
        self._told.set()

    def stop(self) -> None:
        self.events.append(f"{self.name} is asked")
        self._asked = True
        self._told.set()

    def spec(
        self,
        *,
        grace: float = 5.0,
        start_timeout: float = 30.0,
        mailbox: Queue[Any] | None = None,
    ) -> ChildSpec:
        return ChildSpec(
            self.name,
            self.run,
            stop=self.stop,
            grace=grace,
            start_timeout=start_timeout,
            mailbox=mailbox,
        )


class Tree:
    """A supervisor that runs in the background, and how it ended."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.scope = trio.CancelScope()
        self.up = False
        self.over = trio.Event()
        self.end: BaseException | None = None
        self.end_time = -1.0

    def started(self, value: None = None) -> None:  # noqa: ARG002 - a trio.TaskStatus has it
        self.up = True

    async def run(self) -> None:
        try:
            with self.scope:
                await self.supervisor.run(self)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - a test looks at it
            self.end = error
        self.end_time = trio.current_time()
        self.over.set()

    async def stop(self) -> None:
        self.supervisor.stop()
        await self.over.wait()


Grow = Callable[[Supervisor], Tree]


@pytest.fixture
def grow(nursery: trio.Nursery) -> Grow:
    """Run a supervisor in the background until the test ends."""

    def run(supervisor: Supervisor) -> Tree:
        tree = Tree(supervisor)
        nursery.start_soon(tree.run)
        return tree

    return run


@pytest.fixture
def events() -> list[str]:
    """The events of all children, in one list."""
    return []


@pytest.fixture
def a(events: list[str]) -> Child:
    return Child("a", events)


@pytest.fixture
def b(events: list[str]) -> Child:
    return Child("b", events)


@pytest.fixture
def c(events: list[str]) -> Child:
    return Child("c", events)


async def note(answers: list[object], ask: Awaitable[object]) -> None:
    """Append the answer, or the refusal that is the answer."""
    try:
        answers.append(await ask)
    except Refused as refusal:
        answers.append(refusal)


async def do_nothing(state: None) -> None:
    """Be a call that any mailbox answers."""
