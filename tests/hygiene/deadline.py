"""A pytest plugin: a test that hangs fails with the stacks of its tasks, and the next one runs.

After LIMIT seconds (`pytest.mark.deadline(seconds, reason=…)` sets another limit) a SIGALRM handler
asks trio to cancel the test with its fixtures: an exception out of the handler, as pytest-timeout
has it, would break trio's scheduler. SPARE seconds later, or if no trio runs, the handler raises.
If no signal wakes the process, `faulthandler_timeout` (pyproject.toml) ends it; xdist starts
another.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from types import FrameType
from typing import Any

import pytest
import trio
from trio._core._wakeup_socketpair import WakeupSocketpair

from tests.hygiene.scheduling import seed_order
from tests.hygiene.tasks import task_tree

LIMIT = 120.0
"""Seconds for each of setup, call and teardown. Most take less than five; CI machines are busy."""
SPARE = 5.0  # seconds
POLL_INTERVAL = 1.0  # seconds


class TestRun:
    """The trio run of one test."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.verdict = ""
        self._task = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()

    def request_cancel(self) -> None:
        """Have trio cancel the test as soon as possible. Signal handlers may call this."""
        with suppress(trio.RunFinishedError, OSError):  # trio is ending
            self._token.run_sync_soon(self._end, idempotent=True)

    def _end(self) -> None:
        if not self.verdict:
            self.verdict = f"the test was not over in time. Its tasks:\n{task_tree(self._task)}"
            self.scope.cancel()


class Alarm:
    """A timer for the phases of a test. One test runs at a time, so there is one alarm."""

    def __init__(self) -> None:
        self.run: TestRun | None = None
        self._began = 0.0
        self._limit = LIMIT

    def set(self, limit: float) -> None:
        self._began, self._limit = time.monotonic(), limit
        signal.setitimer(signal.ITIMER_REAL, POLL_INTERVAL, POLL_INTERVAL)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def ring(self, _signal: int, _frame: FrameType | None) -> None:
        late = time.monotonic() - self._began - self._limit
        if late > 0 and self.run is not None:
            self.run.request_cancel()
            late -= SPARE
        if late > 0:
            pytest.fail(f"the test was not over after {self._limit:g} s; this is where it was")


_alarm = Alarm()


def run(
    main: Callable[[], Awaitable[object]],
    *,
    clock: trio.abc.Clock | None,
    instruments: Sequence[trio.abc.Instrument],
) -> None:
    """Run a test of pytest-trio under the alarm."""
    seed_order(random.getrandbits(64))  # follows from pytest-randomly's seed
    try:
        trio.run(_run_with_alarm, main, clock=clock, instruments=instruments)
    finally:
        _alarm.run = None  # also if trio itself fails


async def _run_with_alarm(main: Callable[[], Awaitable[object]]) -> None:
    _alarm.run = here = TestRun()
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
    """Return trio's system tasks and the test's main task."""
    root = trio.lowlevel.current_root_task()
    assert root is not None
    return {task for nursery in root.child_nurseries for task in nursery.child_tasks}


def _restore_and_close(pair: WakeupSocketpair) -> None:
    """Restore the wakeup descriptor before closing the sockets.

    trio closes them first. A signal in between is then an error that no code can catch.
    """
    if pair.old_wakeup_fd is not None:
        signal.set_wakeup_fd(pair.old_wakeup_fd)
        pair.old_wakeup_fd = None
    _trio_close(pair)


_trio_close = WakeupSocketpair.close


def pytest_configure(config: pytest.Config) -> None:
    WakeupSocketpair.close = _restore_and_close  # type: ignore[assignment, method-assign]
    text = f"deadline(seconds, reason): what the test needs more than {LIMIT:g} s for"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
            item.add_marker(pytest.mark.trio(run=run), append=False)


def limit(item: pytest.Item) -> float:
    """Return the seconds that each phase of the test may take."""
    mark = item.get_closest_marker("deadline")
    return LIMIT if mark is None else float(_seconds(*mark.args, **mark.kwargs))


def _seconds(seconds: float, *, reason: str) -> float:
    assert reason
    return seconds


@pytest.hookimpl(wrapper=True)
def _phase(item: pytest.Item) -> Generator[None, Any, Any]:
    signal.signal(signal.SIGALRM, _alarm.ring)
    _alarm.set(limit(item))
    try:
        return (yield)
    finally:
        _alarm.stop()


pytest_runtest_setup = pytest_runtest_call = pytest_runtest_teardown = _phase


def pytest_enter_pdb() -> None:
    """Stop the alarm while a debugger runs."""
    _alarm.stop()
