"""Where a task stands, and those below it, without a word of what is in its variables."""

from __future__ import annotations

import threading
from pathlib import Path

import trio
from trio.testing import wait_all_tasks_blocked

from smartlinkd.service_manager.whereabouts import MOST_TASKS, whereabouts

HERE = f"service_manager/{Path(__file__).name}"
LONGEST = 8 * 1024  # characters; of a longer message the log leaves out the middle


class Task:
    """A task that can be looked at."""

    def __init__(self) -> None:
        self.task: trio.lowlevel.Task | None = None
        self.never = trio.Event()

    @property
    def whereabouts(self) -> str:
        assert self.task is not None
        return whereabouts(self.task)

    async def wait(self, children: int = 0) -> None:
        self.task = trio.lowlevel.current_task()
        async with trio.open_nursery() as nursery:
            for _ in range(children):
                nursery.start_soon(self._wait_inside, "hunter2")
            await self._wait_inside("hunter2")

    async def wait_above(self, other: Task) -> None:
        self.task = trio.lowlevel.current_task()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.wait, 1)

    async def _wait_inside(self, password: str) -> str:
        await self.never.wait()
        return password

    async def wait_for_thread(
        self, release: threading.Event, task_status: trio.TaskStatus[None]
    ) -> None:
        self.task = trio.lowlevel.current_task()

        def wait() -> None:
            trio.from_thread.run_sync(task_status.started)
            release.wait()

        await trio.to_thread.run_sync(wait)


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


async def test_a_task_is_told_by_its_name_and_lines_innermost_first(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait)
    await wait_all_tasks_blocked()
    inner = f"{HERE}:{line_of('await self.never.wait()')} _wait_inside"
    outer = f"{HERE}:{line_of('await self._wait_inside(')} wait"
    assert "Task.wait at trio/_sync.py:" in it.whereabouts
    assert f" < {inner} < {outer}" in it.whereabouts
    assert "hunter2" not in it.whereabouts


async def test_the_tasks_below_it_are_told_too(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait, 2)
    await wait_all_tasks_blocked()
    assert it.whereabouts.count("Task._wait_inside at ") == 2


async def test_the_tasks_below_those_are_told_as_well(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait_above, Task())
    await wait_all_tasks_blocked()
    told = [place.partition(" at ")[0].rpartition(".")[2] for place in it.whereabouts.split("; ")]
    assert told == ["wait_above", "wait", "_wait_inside"]


async def test_of_many_tasks_some_are_told(nursery: trio.Nursery) -> None:
    it = Task()
    nursery.start_soon(it.wait, 500)
    await wait_all_tasks_blocked()
    assert it.whereabouts.endswith(f"; and {501 - MOST_TASKS} more tasks")
    assert len(it.whereabouts) < LONGEST


async def test_a_thread_that_a_task_waits_for_is_told_and_no_other(nursery: trio.Nursery) -> None:
    it, other, release = Task(), Task(), threading.Event()
    try:
        nursery.start_soon(other.wait)
        await nursery.start(it.wait_for_thread, release)
        thread = it.whereabouts.partition("; thread 'wait from ")[2]
        assert f" < {HERE}:" in thread
        assert "; thread " not in other.whereabouts
    finally:
        release.set()


async def test_a_task_that_has_ended_is_at_its_end() -> None:
    it = Task()
    with trio.move_on_after(0):
        await it.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(note, it)
    assert it.whereabouts.endswith(" at its end")


async def note(it: Task) -> None:
    it.task = trio.lowlevel.current_task()
