"""A child that does as it is told and notes its life, and a way to strike at every single step."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from itertools import count

import pytest
import trio
from trio.testing import MockClock

from daemon.supervision.policy import Restart
from daemon.supervision.supervisor import ChildSpec, Closable, Supervisor

HANG = 10_000.0  # virtual seconds; what takes that long hangs
SEEDS = 4  # orders in which trio steps the tasks that are ready at the same time


class Child:
    """One child for a supervisor: it notes what happens to it in `events`.

    `before` runs before it serves; `tidy` runs when it ends, whatever the reason. `fail`,
    `finish` end the incarnation that serves. Told to `stop` it returns after `stop_takes` seconds.
    """

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events
        self.incarnations = 0
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
        self.incarnations += 1
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

    def fail(self, error: BaseException) -> None:
        self._error = error
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
        restart: Restart = Restart.PERMANENT,
        grace: float = 5.0,
        start_timeout: float = 30.0,
        mailbox: Closable | None = None,
    ) -> ChildSpec:
        """A spec with `stop`; for one without, take `ChildSpec` itself."""
        return ChildSpec(
            self.name,
            self.run,
            restart=restart,
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


class Strike(trio.abc.Instrument):
    """Does its deed right before the `at`-th step that any task takes after `arm`."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.happened = False
        self._steps = 0
        self._deed: Callable[[], object] | None = None

    def arm(self, deed: Callable[[], object]) -> None:
        self._deed = deed

    def disarm(self) -> None:
        self._deed = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - trio's call
        if self._deed is None or self.happened:
            return
        self._steps += 1
        if self._steps == self.at:
            self.happened = True
            self._deed()


Scenario = Callable[[Strike], Awaitable[None]]
AtEveryStep = Callable[[Scenario], int]


Grow = Callable[[Supervisor], Tree]


@pytest.fixture
def grow(nursery: trio.Nursery) -> Grow:
    """Runs a supervisor in the background until the test ends, if not sooner."""

    def run(supervisor: Supervisor) -> Tree:
        tree = Tree(supervisor)
        nursery.start_soon(tree.run)
        return tree

    return run


@pytest.fixture
def events() -> list[str]:
    """What happens to all three children, in one list."""
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


@pytest.fixture
def at_every_step(monkeypatch: pytest.MonkeyPatch) -> AtEveryStep:
    """Runs a scenario again and again, with the strike one step later each time.

    It ends when the scenario is through before the strike. Each run has a mock clock of its own
    and the scheduler's dice are seeded, so a failure comes again. Returns how many steps there are,
    so that a test can tell that it has not been idle.
    """

    def drive(scenario: Scenario) -> int:
        fewest = HANG
        for seed in range(SEEDS):
            for at in count(1):
                monkeypatch.setattr("trio._core._run._r", random.Random(seed))
                strike = Strike(at)
                clock = MockClock(autojump_threshold=0)
                try:
                    trio.run(_bounded, scenario, strike, clock=clock, instruments=[strike])
                except BaseException as error:
                    error.add_note(f"strike at step {at}, seed {seed}")
                    raise
                if not strike.happened:
                    fewest = min(fewest, at - 1)
                    break
        return int(fewest)

    return drive


async def _bounded(scenario: Scenario, strike: Strike) -> None:
    with trio.fail_after(HANG):
        await scenario(strike)
