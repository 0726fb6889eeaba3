"""Lines to a pipe or a terminal that may take nothing for as long as it likes.

The problem: a pipe whose reader is stopped, or a terminal on which somebody has pressed Ctrl-S or
is selecting text, is full after some kilobytes, and the next write waits. The daemon logs on its
only loop, so with it everything would wait: clients, the shutdown, SIGTERM.

The choice: as with the journal, what is not taken at once is counted and let go, and the count is
told when lines are taken again. For that the pipe or terminal is opened once more, since a change
to the descriptor that we were given would be one for the shell that gave it, too.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from smartlinkd.logs.context import InContext
from smartlinkd.logs.events import Event
from smartlinkd.logs.formats import ForTerminals, JsonLines
from smartlinkd.logs.journald import AT_ONCE, Journal, entry, priority, reads


def set_up(
    level: str, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ
) -> None:
    """Send the log to `stream` (standard error), ours from `level` ("debug", "info", …) on.

    Called again it replaces what it set up before.
    """
    handler = _handler(sys.stderr if stream is None else stream, environ)
    handler.addFilter(InContext())
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, (JsonLines, ForTerminals)):
            root.removeHandler(old)
            old.close()
    root.addHandler(handler)
    set_level(level)
    logging.captureWarnings(True)


def set_level(level: str) -> None:
    """Send our log from this level on, and other people's from WARNING on."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(max(ours, logging.WARNING))
    logging.getLogger("smartlinkd").setLevel(ours)


class Lines:
    """Whole lines to something that may take a part of one, or nothing."""

    def __init__(self, send: Callable[[bytes], int]) -> None:
        """`send` says how many bytes were taken, or raises `OSError`; it never waits."""
        self._send = send
        self._torn = b""  # the end of a line whose beginning was taken

    def write(self, line: bytes) -> bool:
        """Whether its beginning was taken, at least. What was not goes before the next one, so that
        lines stay lines."""
        try:
            while self._torn:
                self._torn = self._torn[self._send(self._torn) :]
            self._torn = line[self._send(line) :]
        except OSError:
            return False
        return True


class NeverWaitingHandler(logging.Handler):
    """Counts the records that were not taken at once, and tells of them when some are again."""

    def __init__(self, reader: str) -> None:
        """`reader` is who takes the records, in the words of that."""
        super().__init__()
        self._reader = reader
        self._lost = 0

    def take(self, record: logging.LogRecord) -> bool:
        """Whether it was taken; without waiting."""
        raise NotImplementedError

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not self.take(record):
                self._lost += 1
            if self._lost and self.take(_record_of_lost(self._lost, self._reader)):
                self._lost = 0
        except Exception:  # noqa: BLE001 - as every handler: a record's fault is told, not raised
            self.handleError(record)


class LineHandler(NeverWaitingHandler):
    """Logs lines to a descriptor that does not wait, and closes that in the end."""

    def __init__(self, descriptor: int) -> None:
        super().__init__("standard error")
        self._descriptor = descriptor
        self._lines = Lines(lambda data: os.write(descriptor, data))

    def take(self, record: logging.LogRecord) -> bool:
        return self._lines.write(f"{self.format(record)}\n".encode(errors="backslashreplace"))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()


class JournalHandler(NeverWaitingHandler):
    """Logs to the journal, or to `stream`, which the journal reads, when its socket takes nothing.

    `stream` has a descriptor, and that of a socket; it is written to without waiting.
    """

    def __init__(self, stream: TextIO, journal: Journal) -> None:
        super().__init__("the journal")
        self.setFormatter(JsonLines())
        self._journal = journal
        self._stream = socket.socket(fileno=os.dup(stream.fileno()))
        self._lines = Lines(lambda data: self._stream.send(data, AT_ONCE))

    def take(self, record: logging.LogRecord) -> bool:
        try:
            self._journal.send(entry(record))
        except OSError:
            line = f"<{priority(record.levelno)}>{self.format(record)}\n"
            return self._lines.write(line.encode())
        return True

    def close(self) -> None:
        self._journal.close()
        self._stream.close()
        super().close()


def _handler(stream: TextIO, environ: Mapping[str, str]) -> logging.Handler:
    if reads(stream, environ):
        return JournalHandler(stream, Journal())
    again = opened_again(stream)
    handler = logging.StreamHandler(stream) if again is None else LineHandler(again)
    handler.setFormatter(ForTerminals() if stream.isatty() else JsonLines())
    return handler


def opened_again(stream: TextIO) -> int | None:
    """A descriptor of our own for the pipe or terminal behind `stream`, that does not wait; None
    where it is something else, which takes all (a file) or cannot be opened by us."""
    try:
        number = stream.fileno()
        if not (stat.S_ISFIFO(os.fstat(number).st_mode) or os.isatty(number)):
            return None
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{number}", flags)
    except (OSError, ValueError):  # no file at all, closed, or another user's
        return None


def _record_of_lost(count: int, reader: str) -> logging.LogRecord:
    text, event = f"%d log records are lost: {reader} did not take them", Event.RECORDS_LOST
    made = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)
    made.__dict__.update(event())
    return made
