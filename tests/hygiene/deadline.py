"""A test that hangs fails, says where each of its tasks stands, and the next one runs. A part of
pytest.

pytest-timeout ends a test by an exception out of a signal handler, which trio's scheduler does not
survive. So here the handler of a timer, which rings every second, only asks trio to call back, and
what is called there cancels the whole test, its fixtures included, like a `trio.fail_after`
around them. It does so

* when nothing can go on by itself: no task is ready to run, none has a deadline or waits for a
  descriptor, no thread is at work, and none of this changes until the next look. So hangs a test
  on a mock clock, where no second ever passes; nor need one on the real clock be waited for;
* when LIMIT seconds have passed on the machine's clock, whatever trio's clock says. A test that
  needs more has `pytest.mark.deadline(seconds, reason=…)`.

When the test is not over SPARE seconds later, whatever shields it from its cancellation is taken
away. When trio does not call back at all, since something blocks its thread, or when the test is no
coroutine, there is nothing but the exception out of the handler; a fixture of pytest's is ended in
the same way. Last comes `faulthandler_timeout` (pyproject.toml), for what no signal wakes up: it
ends the process, and xdist starts another one for the tests that are left.

Trio closes what a signal wakes it up by before it says so: when the timer rings in between, that is
an error that nobody can be told of. Here it says so first.

The order in which trio runs its tasks is drawn anew for each test from pytest-randomly's seed, so
that a seed gives it again.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from math import inf
from types import FrameType
from typing import Any

import pytest
import trio
from trio._core import _run as trio_run
from trio._core._run import CancelStatus
from trio._core._wakeup_socketpair import WakeupSocketpair
from trio.testing import MockClock

from tests.hygiene.look import busy_threads
from tests.hygiene.tasks import task_tree

LIMIT = 120.0
"""Seconds for the setup, the call, and the end of a test each. Few take more than five, but there
are machines that do a dozen other things."""
SPARE = 5.0
LOOK_EVERY = 1.0


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks but the one that calls back."""

    def __init__(self) -> None:
        self.taken = 0
        self._since = time.monotonic()
        self._not_counted = trio.lowlevel.current_task()

    def seconds(self) -> float:
        """For which it has counted."""
        return time.monotonic() - self._since

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.taken += task is not self._not_counted


class TestRun:
    """A test's run of trio."""

    def __init__(self, clock: trio.abc.Clock | None) -> None:
        self.scope = trio.CancelScope()
        self.verdict = ""
        self.given_up = False
        self._clock = clock
        self._called_back = time.monotonic()
        self._task = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()
        self._threads = busy_threads()
        self._steps: Steps | None = None
        self._cancelled = 0.0

    def ask(self, over: bool) -> None:
        """For a signal handler: have trio look, at the next opportunity."""
        with suppress(trio.RunFinishedError, OSError):  # it has crashed just now
            self._token.run_sync_soon(self._look, over, idempotent=True)

    def is_stuck(self) -> bool:
        """Whether it does not listen, or was cancelled twice and goes on."""
        now = time.monotonic()
        return now > self._called_back + SPARE or 0 < self._cancelled < now - 2 * SPARE

    def _look(self, over: bool) -> None:
        self._called_back = time.monotonic()
        if self.given_up:
            return
        if self.verdict:
            if self._called_back > self._cancelled + SPARE:
                unshield()
            return
        if over:
            self._end("it was not over in time")
        elif self._is_idle_again():
            self._end("nothing in it can go on: no task is ready, or will be at some time")

    def _is_idle_again(self) -> bool:
        """Whether it was idle at the last look, is now, and has done nothing in between.

        By one look alone, what is about to be woken could be taken for asleep.
        """
        if self._steps is not None:
            if self._steps.seconds() < LOOK_EVERY / 2:
                return False  # something blocked the thread, and this look came late
            trio.lowlevel.remove_instrument(self._steps)
        steps, self._steps = self._steps, None
        if not self._is_idle():
            return False
        if steps is not None and not steps.taken:
            return True
        self._steps = Steps()
        trio.lowlevel.add_instrument(self._steps)
        return False

    def _is_idle(self) -> bool:
        """Whether nothing but a signal or another process could wake any task."""
        now = trio.lowlevel.current_statistics()
        waiting = now.io_statistics
        assert waiting.backend == "epoll"
        return (
            now.tasks_runnable == 0
            and (now.seconds_to_next_deadline == inf or self._stands_still())
            and waiting.tasks_waiting_read == waiting.tasks_waiting_write == 0
            and busy_threads() <= self._threads
        )

    def _stands_still(self) -> bool:
        """Whether its clock goes only when a task of its own makes it go."""
        clock = self._clock
        return isinstance(clock, MockClock) and clock.rate == 0 and clock.autojump_threshold == inf

    def _end(self, why: str) -> None:
        self._cancelled = self._called_back
        self.verdict = f"{why}. Its tasks:\n{task_tree(self._task)}"
        self.scope.cancel()


def unshield() -> None:
    """Let a cancellation reach all tasks of this run."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    tasks = [root]
    while tasks:
        task = tasks.pop()
        status: CancelStatus | None = task._cancel_status
        while status is not None:
            status._scope.shield = False
            status = status._parent
        for nursery in task.child_nurseries:
            tasks += nursery.child_tasks


class Alarm:
    """Rings while a phase of a test lasts. There is one test at a time, and one alarm."""

    def __init__(self) -> None:
        self.run: TestRun | None = None
        self._began = 0.0
        self._limit = LIMIT

    def set(self, limit: float) -> None:
        self._began, self._limit = time.monotonic(), limit
        signal.setitimer(signal.ITIMER_REAL, LOOK_EVERY, LOOK_EVERY)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def ring(self, _signal: int, _frame: FrameType | None) -> None:
        over = time.monotonic() > self._began + self._limit
        if self.run is not None:
            self.run.ask(over)
            over = self.run.given_up = over and self.run.is_stuck()
        if over:
            pytest.fail(f"it was not over after {self._limit:g} s; this is where it stood")


_alarm = Alarm()


def run(
    main: Callable[[], Awaitable[object]],
    *,
    clock: trio.abc.Clock | None,
    instruments: Sequence[trio.abc.Instrument],
) -> None:
    """`trio.run`, under the alarm. What pytest-trio runs its tests with."""
    trio_run._r.seed(random.getrandbits(64))
    try:
        trio.run(_watched, main, clock, clock=clock, instruments=instruments)
    finally:
        _alarm.run = None  # for a run that has crashed


async def _watched(main: Callable[[], Awaitable[object]], clock: trio.abc.Clock | None) -> None:
    _alarm.run = here = TestRun(clock)
    before = _system_tasks()
    try:
        with here.scope:
            await main()
    except BaseException as error:
        if here.verdict:
            pytest.fail(f"{here.verdict}\nIt ended with {error!r}", pytrace=False)
        raise
    finally:
        _alarm.run = None
    if here.verdict:
        pytest.fail(here.verdict, pytrace=False)
    if left := _system_tasks() - before:
        pytest.fail(f"left behind: the system tasks {[task.name for task in left]}", pytrace=False)


def _system_tasks() -> set[trio.lowlevel.Task]:
    """This one, and those that are in no nursery of anybody's."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return {task for nursery in root.child_nurseries for task in nursery.child_tasks}


def _close_deaf(pair: WakeupSocketpair) -> None:
    """What trio does at the end of a run, in another order."""
    if pair.old_wakeup_fd is not None:
        signal.set_wakeup_fd(pair.old_wakeup_fd)
        pair.old_wakeup_fd = None
    _close(pair)


_close = WakeupSocketpair.close


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest at its start."""
    WakeupSocketpair.close = _close_deaf  # type: ignore[assignment, method-assign]
    text = f"deadline(seconds, reason): what the test needs more than {LIMIT:g} s for"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest when all tests are known."""
    for item in items:
        if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.trio(run=run), append=False)


def limit(item: pytest.Item) -> float:
    """Seconds that a test may take."""
    mark = item.get_closest_marker("deadline")
    return LIMIT if mark is None else float(_seconds(*mark.args, **mark.kwargs))


def _seconds(seconds: float, *, reason: str) -> float:
    assert reason
    return seconds


def _phase(item: pytest.Item) -> Generator[None, Any, Any]:
    signal.signal(signal.SIGALRM, _alarm.ring)
    _alarm.set(limit(item))
    try:
        return (yield)
    finally:
        _alarm.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Called by pytest before each test."""
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Called by pytest for each test."""
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Called by pytest after each test."""
    return (yield from _phase(item))


def pytest_enter_pdb() -> None:
    """Called by pytest when somebody looks into it: that may take its time."""
    _alarm.stop()
