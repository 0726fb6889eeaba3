"""Where a part's tasks stand, for whoever has to find out why it has stopped.

Names, files and lines alone: what is in variables may be a secret.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from types import FrameType
from typing import Final

import trio

MOST_TASKS: Final = 24
MOST_FRAMES: Final = 5
"""The innermost, of each task or thread; the record of it all stays under 8 KiB."""
_TRIO: Final = str(PurePath(trio.__file__).parent)


def whereabouts(task: trio.lowlevel.Task) -> str:
    """The task, those below it, and the threads that they wait for; the innermost place first."""
    tasks = list(_below(task))
    names = {each.name for each in tasks}
    places = [f"{each.name} at {_stack(_frames(each))}" for each in tasks[:MOST_TASKS]]
    if len(tasks) > MOST_TASKS:
        places.append(f"and {len(tasks) - MOST_TASKS} more tasks")
    return "; ".join([*places, *_threads(names)])


def _below(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _below(child)


def _frames(task: trio.lowlevel.Task) -> list[tuple[FrameType, int]]:
    return list(task.iter_await_frames())[::-1]


def _threads(names: Iterable[str]) -> Iterator[str]:
    """Trio's worker threads that work for one of these tasks, which is in their names."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None and thread.name.partition(" from ")[2] in names:
            yield f"thread {thread.name!r} at {_stack(_callers(frame))}"


def _callers(frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back


def _stack(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Of trio's own, the one that was called: what is inside says nothing."""
    told: list[str] = []
    within_trio = False
    for frame, line in frames:
        path = frame.f_code.co_filename
        if within_trio and path.startswith(_TRIO):
            told.pop()
        within_trio = path.startswith(_TRIO)
        told.append(f"{'/'.join(PurePath(path).parts[-2:])}:{line} {frame.f_code.co_name}")
    return " < ".join(told[:MOST_FRAMES]) or "its end"
