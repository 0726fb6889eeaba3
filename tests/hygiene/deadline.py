"""A test that hangs fails, says where each of its tasks stands, and the next one runs. A part of
pytest.

pytest-timeout ends a test by an exception out of a signal handler, which trio's scheduler does not
survive. So here the handler of a timer asks trio to call back once LIMIT seconds have passed on the
machine's clock, whatever trio's clock says, and what is called there cancels the whole test, its
fixtures included, like a `trio.fail_after` around them. A test that needs more has
`pytest.mark.deadline(seconds, reason=…)`.

When the test is not over SPARE seconds later, since something shields it or blocks trio's thread,
or when it is no coroutine, there is nothing but the exception out of the handler; a fixture of
pytest's is ended in the same way. Last comes `faulthandler_timeout` (pyproject.toml), for what no
signal wakes up: it ends the process, and xdist starts another one for the tests that are left.

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
from types import FrameType
from typing import Any

import pytest
import trio
from trio._core._wakeup_socketpair import WakeupSocketpair

from tests.hygiene.scheduling import seed_order
from tests.hygiene.tasks import task_tree

LIMIT = 120.0
"""Seconds for the setup, the call, and the end of a test each. Few take more than five, but there
are machines that do a dozen other things."""
SPARE = 5.0
LOOK_EVERY = 1.0


class TestRun:
    """A test's run of trio."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.verdict = ""
        self._task = trio.lowlevel.current_task()
        self._token = trio.lowlevel.current_trio_token()

    def ask(self) -> None:
        """For a signal handler: have trio cancel the test, at the next opportunity."""
        with suppress(trio.RunFinishedError, OSError):  # it has crashed just now
            self._token.run_sync_soon(self._end, idempotent=True)

    def _end(self) -> None:
        if not self.verdict:
            self.verdict = f"it was not over in time. Its tasks:\n{task_tree(self._task)}"
            self.scope.cancel()


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
        late = time.monotonic() - self._began - self._limit
        if late > 0 and self.run is not None:
            self.run.ask()
            late -= SPARE
        if late > 0:
            pytest.fail(f"it was not over after {self._limit:g} s; this is where it stood")


_alarm = Alarm()


def run(
    main: Callable[[], Awaitable[object]],
    *,
    clock: trio.abc.Clock | None,
    instruments: Sequence[trio.abc.Instrument],
) -> None:
    """`trio.run`, under the alarm. What pytest-trio runs its tests with."""
    seed_order(random.getrandbits(64))
    try:
        trio.run(_watched, main, clock=clock, instruments=instruments)
    finally:
        _alarm.run = None  # for a run that has crashed


async def _watched(main: Callable[[], Awaitable[object]]) -> None:
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
    WakeupSocketpair.close = _close_deaf  # type: ignore[assignment, method-assign]
    text = f"deadline(seconds, reason): what the test needs more than {LIMIT:g} s for"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
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
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _phase(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _phase(item))


def pytest_enter_pdb() -> None:
    """Called by pytest when somebody looks into it: that may take its time."""
    _alarm.stop()
