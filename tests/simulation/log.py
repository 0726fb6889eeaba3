"""What happened, in order and with its time: the tail is what a failure prints, the digest is what
two runs of one seed have in common."""

from __future__ import annotations

import hashlib
import logging
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import trio

KEPT = 2000
"""Lines; the digest has all of them."""


MARK = "struck by the nemesis"


class Struck(Exception):  # noqa: N818 - says what happened to whoever raises it
    """The nemesis makes a part of the daemon crash: the one exception that is allowed to."""


class Log:
    """The world's log. `counts` are of requests, faults and whatever else is summed up."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the world's, whose name is another one each time, and is left out."""
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
    """The daemon's own log as part of the world's. What is an error there is one here, unless it
    `is_due`, by its text and its cause."""

    def __init__(
        self,
        log: Log,
        is_due: Callable[[str, BaseException | None], bool],
        unexpected: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._log = log
        self._is_due = is_due
        self._unexpected = unexpected
        self.deaf = False
        """What a process says after its death is nothing."""

    def emit(self, record: logging.LogRecord) -> None:
        if self.deaf:
            return
        text = record.getMessage()
        self._log.note(f"log {record.levelname.lower()} {record.name}: {text}")
        fault = record.exc_info[1] if record.exc_info else None
        if fault is None and record.levelno < logging.ERROR:
            return
        if all(self._is_due(text, leaf) for leaf in _leaves(fault)):
            return
        if fault is not None:
            text += "\n" + "".join(traceback.format_exception(fault))
        self._unexpected(f"an error that nobody asked for is in the log: {text}")


@contextmanager
def recorded_by(records: Records) -> Iterator[None]:
    """Have all that is logged in the block there, and nowhere else."""
    root, daemon = logging.getLogger(), logging.getLogger("smartlinkd")
    others, level = root.handlers[:], daemon.level
    root.handlers[:] = [records]
    daemon.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = others
        daemon.setLevel(level)


def _leaves(fault: BaseException | None) -> Iterator[BaseException | None]:
    if isinstance(fault, BaseExceptionGroup):
        for part in fault.exceptions:
            yield from _leaves(part)
    else:
        yield fault
