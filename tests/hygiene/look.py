"""A snapshot of all that a test may leave behind: a set of named things.

Two snapshots are compared. A resource (descriptor, thread, process, temporary file) in the second
alone was left. Of the process's state (environment, working folder, signal handlers, logging) every
difference counts. All of it comes from the kernel and from Python's own lists, in 200 µs.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.hygiene.folder import FOLDER
from tests.hygiene.processes import children, command_of

STATE = ("environment variable", "working folder", "handler of", "logger")
PROCESSES = ("child process", "stray process")
SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("CHLD", "HUP", "INT", "PIPE", "QUIT", "TERM", "USR1", "USR2", "WINCH")
)
IDLE_THREAD = re.compile(r"Trio thread \d+")
OF_PYTEST = "PYTEST_CURRENT_TEST"
LONGEST = 200
"""Characters of one thing's description."""


class Thing(NamedTuple):
    """`number` is of a descriptor, thread or process; all others have 0 and are known by `text`."""

    kind: str
    number: int
    text: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= LONGEST else self.text[:LONGEST] + "…"
        if self.kind in PROCESSES:
            text = command_of(self.number)
        elif self.kind == "thread":
            text = f"{self.text}, {_position(self.number)}"
        return f"{self.kind} {self.number}: {text}" if self.number else f"{self.kind} {text}"


Snapshot = set[Thing]


def snapshot() -> Snapshot:
    found = set(descriptors())
    found.update(Thing("child process", pid, "") for pid in children())
    found.update(Thing("thread", one.ident or 0, one.name) for one in busy_threads())
    found.update(Thing("temporary file", 0, name) for name in os.listdir(FOLDER))  # noqa: PTH208 - quicker
    found.update(_state())
    return found


def state_of(things: Snapshot) -> Snapshot:
    """Return the things that are part of the process's state."""
    return {thing for thing in things if thing.kind in STATE}


def descriptors() -> Iterator[Thing]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a thousandth of the time
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
        yield Thing("descriptor", int(name), target)


def busy_threads() -> set[threading.Thread]:
    """Return the threads at work. trio renames its idle ones, which end by themselves."""
    return {each for each in threading.enumerate() if not IDLE_THREAD.fullmatch(each.name)}


def _position(ident: int) -> str:
    """Return the position of a thread, in code outside of Python's library if possible."""
    innermost = frame = sys._current_frames().get(ident)
    while frame is not None and "/lib/python" in frame.f_code.co_filename:
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return "which has ended by now"
    return f"at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _state() -> Iterator[Thing]:
    for name, value in os.environ.items():
        if name != OF_PYTEST:
            yield Thing("environment variable", 0, f"{name}={value}")
    yield Thing("working folder", 0, _working_folder())
    for number in SIGNALS:
        yield Thing("handler of", 0, f"{number.name}: {signal.getsignal(number)}")
    yield from _loggers()


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "one that was removed"


def _loggers() -> Iterator[Thing]:
    """Yield the loggers that differ from a new one. Null handlers do not count."""
    manager = logging.Logger.manager
    yield Thing("logger", 0, f"all: disabled up to {manager.disable}")
    for logger in (logging.root, *manager.loggerDict.values()):
        if not isinstance(logger, logging.Logger):
            continue
        if not (logger.level or logger.handlers or logger.disabled or not logger.propagate):
            continue
        handlers = [h for h in logger.handlers if type(h) is not logging.NullHandler]
        settings = f"{logger.level=} {logger.disabled=} {logger.propagate=}"
        yield Thing("logger", 0, f"{logger.name}: {settings} {handlers}".replace("logger.", ""))
