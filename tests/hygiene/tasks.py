"""Trio's tasks: a list of all, and their tree as text with the line at which each waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]
OURS = (str(ROOT / "daemon"), str(ROOT / "tests"))


def all_tasks() -> list[trio.lowlevel.Task]:
    """Return every task of this trio run, including trio's own; [] before the first."""
    root = trio.lowlevel.current_root_task()
    found = [] if root is None else [root]
    for task in found:
        found += _children(task)
    return found


def daemon_tasks() -> Counter[str]:
    """Count the tasks that run the daemon's code, by name."""
    return Counter(task.name for task in all_tasks() if task.name.startswith("smartlinkd."))


def task_tree(main: trio.lowlevel.Task) -> str:
    return "\n".join(line for child in _children(main) for line in _lines(child, "  "))


def _lines(task: trio.lowlevel.Task, indent: str) -> Iterator[str]:
    yield f"{indent}{task.name}: {_position(task)}"
    for child in _children(task):
        yield from _lines(child, indent + "    ")


def _children(task: trio.lowlevel.Task) -> list[trio.lowlevel.Task]:
    found = [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return sorted(found, key=lambda child: child.name)


def _position(task: trio.lowlevel.Task) -> str:
    """Return the innermost line of our code, and the function that it has called."""
    frames = list(task.iter_await_frames())
    if not frames:
        return "running, or not begun"
    ours = [n for n, (frame, _) in enumerate(frames) if frame.f_code.co_filename.startswith(OURS)]
    at = ours[-1] if ours else 0
    called = f", in {frames[at + 1][0].f_code.co_qualname}()" if at + 1 < len(frames) else ""
    frame, line = frames[at]
    path = Path(frame.f_code.co_filename)
    shown = path.relative_to(ROOT) if ours else Path(*path.parts[-3:])
    return f"{shown}:{line} in {frame.f_code.co_name}{called}"
