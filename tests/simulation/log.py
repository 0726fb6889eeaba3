"""The log of a simulation. Two runs of one seed have the same digest; a failure prints the tail."""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

from smartlinkd.errors import leaves

KEPT = 2000
"""The last lines that are kept; the digest is of all lines."""

MARK = "crashed by the fault injector"
"""Text in the error of each injected crash."""


class InjectedCrash(Exception):  # noqa: N818 - the name says it
    """An error that the fault injector raises in an actor."""


class Log:
    """The log. `counts` are numbers of requests, faults and other things for the summary."""

    def __init__(self, folder: Path) -> None:
        """`folder` has a new name in each run, so its name is left out of the lines."""
        self._folder = str(folder)
        self.counts: Counter[str] = Counter()
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._digest = hashlib.sha256()

    def note(self, what: str, *, count: str = "") -> None:
        line = f"{trio.current_time():13.6f}  {what.replace(self._folder, '')}"
        self._digest.update(line.encode("utf-8", "backslashreplace") + b"\n")
        self.lines.append(line)
        if count:
            self.counts[count] += 1

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


class Records(logging.Handler):
    """Copies the daemon's log to the simulation's, and calls `fail` for unexpected errors.

    `is_expected` takes a record's text and its exception, or None.
    """

    def __init__(
        self,
        log: Log,
        is_expected: Callable[[str, BaseException | None], bool],
        fail: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._log = log
        self._is_expected = is_expected
        self._fail = fail
        self.is_muted = False
        """True after a SIGKILL: a process that has ended logs nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.is_muted:
            return
        text = record.getMessage()
        self._log.note(f"log {record.levelname.lower()} {record.name}: {text}")
        fault = record.exc_info[1] if record.exc_info else None
        if fault is None and record.levelno < logging.ERROR:
            return
        faults = leaves(fault) if isinstance(fault, BaseExceptionGroup) else [fault]
        if all(self._is_expected(text, each) for each in faults):
            return
        if fault is not None:
            text += "\n" + "".join(traceback.format_exception(fault))
        self._fail(f"an unexpected error is in the log: {text}")


@contextmanager
def recording_in(records: Records) -> Iterator[None]:
    """Send all log records of the block to `records` alone."""
    root, daemon = logging.getLogger(), logging.getLogger("smartlinkd")
    others, level = root.handlers[:], daemon.level
    root.handlers[:] = [records]
    daemon.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = others
        daemon.setLevel(level)
