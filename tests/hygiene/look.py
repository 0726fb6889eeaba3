"""What a test may leave behind, looked at as it is now: a set of things, each with a name.

Two looks are compared. A resource (descriptor, thread, process, temporary file) that is in the
second alone was left; of the process's state (environment, working folder, signal handlers,
logging) a difference either way is one.

All of it is read from the kernel and from Python's own lists, so nothing has to be told to it, and
a look takes some 200 microseconds.
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
"""Characters of what is said of one thing."""


class Thing(NamedTuple):
    """`number` is a descriptor's, a thread's or a process's; what has none is told by its text."""

    kind: str
    number: int
    text: str

    def __str__(self) -> str:
        text = self.text if len(self.text) <= LONGEST else self.text[:LONGEST] + "…"
        if self.kind in PROCESSES:
            text = command_of(self.number)
        elif self.kind == "thread":
            text = f"{self.text}, {_stands(self.number)}"
        return f"{self.kind} {self.number}: {text}" if self.number else f"{self.kind} {text}"


Look = set[Thing]


def look() -> Look:
    found = set(descriptors())
    found.update(Thing("child process", pid, "") for pid in children())
    found.update(Thing("thread", one.ident or 0, one.name) for one in busy_threads())
    found.update(Thing("temporary file", 0, name) for name in os.listdir(FOLDER))  # noqa: PTH208 - quicker
    found.update(_state())
    return found


def state_of(things: Look) -> Look:
    """Those of them that are the process's state."""
    return {thing for thing in things if thing.kind in STATE}


def descriptors() -> Iterator[Thing]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - a thousandth of the time
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the one that the list itself was read from
        yield Thing("descriptor", int(name), target)


def busy_threads() -> set[threading.Thread]:
    """Those at work. trio keeps some for later, which end by themselves when none comes; while one
    works, it has the name of its task."""
    return {each for each in threading.enumerate() if not IDLE_THREAD.fullmatch(each.name)}


def _stands(ident: int) -> str:
    """Where a thread is: in code of ours, if there is any."""
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
    """Those that are not as they are made. Handlers that do nothing do no harm either."""
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
