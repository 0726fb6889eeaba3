"""Sets up logging, with handlers that never wait for whoever reads the log.

The daemon logs in its only event loop, so a full pipe or a halted terminal (Ctrl-S) must not block
a write. A record that is not taken at once is counted and dropped; the count is logged as soon as
records are taken again. See docs/decisions/010-log-output.md.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from smartlinkd.logs.context import ContextFilter
from smartlinkd.logs.events import LogEvent
from smartlinkd.logs.formats import JsonFormatter, TerminalFormatter
from smartlinkd.logs.journald import SOCKET, encode_entry, is_journal


def set_up(
    level: str,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    journal_socket: str = SOCKET,
) -> None:
    """Send the log to `stream`, by default standard error; to the journal if that reads it.

    Args:
        level: the lowest level of our own records ("debug", "info", …).
    """
    handler = _make_handler(sys.stderr if stream is None else stream, environ, journal_socket)
    handler.addFilter(ContextFilter())
    logging.getLogger().addHandler(handler)
    set_level(level)
    logging.captureWarnings(True)


def set_level(level: str) -> None:
    """Log our own records from `level` on, and those of libraries from WARNING on."""
    ours = logging.getLevelNamesMapping()[level.upper()]
    # Some libraries log addresses at INFO.
    logging.getLogger().setLevel(max(ours, logging.WARNING))
    logging.getLogger("smartlinkd").setLevel(ours)


class NonBlockingHandler(logging.Handler):
    """Writes records without waiting. What is not taken at once is lost, counted, and told later.

    Args:
        reader: who takes the records, for the text about lost ones.
    """

    def __init__(self, reader: str) -> None:
        super().__init__()
        self._reader = reader
        self._lost = 0

    def try_emit(self, record: logging.LogRecord) -> bool:
        """Write a record without waiting. Return True if it was taken."""
        raise NotImplementedError

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not self.try_emit(record):
                self._lost += 1
            if self._lost and self.try_emit(self._lost_record()):
                self._lost = 0
        except Exception:  # noqa: BLE001 - as every handler of `logging`: it must not raise
            self.handleError(record)

    def _lost_record(self) -> logging.LogRecord:
        text = f"%d log records are lost: {self._reader} did not take them"
        lost = logging.LogRecord(
            __name__, logging.WARNING, __file__, 0, text, (self._lost,), exc_info=None
        )
        lost.__dict__.update(LogEvent.RECORDS_LOST())
        return lost


class DescriptorHandler(NonBlockingHandler):
    """Logs lines to a non-blocking descriptor, which it owns."""

    def __init__(self, descriptor: int) -> None:
        super().__init__("standard error")
        self._descriptor = descriptor
        self._rest = b""  # of a line whose beginning was taken

    def try_emit(self, record: logging.LogRecord) -> bool:
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            while self._rest:
                self._rest = self._rest[os.write(self._descriptor, self._rest) :]
            self._rest = line[os.write(self._descriptor, line) :]
        except OSError:
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()


class JournalHandler(NonBlockingHandler):
    """Logs to the journal's socket at `path`."""

    def __init__(self, path: str) -> None:
        super().__init__("the journal")
        self._path = path
        # Not connected: a restarted journal has another socket.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def try_emit(self, record: logging.LogRecord) -> bool:
        try:
            self._socket.sendto(encode_entry(record), self._path)
        except OSError:
            return False
        return True

    def close(self) -> None:
        self._socket.close()
        super().close()


def _make_handler(
    stream: TextIO, environ: Mapping[str, str], journal_socket: str
) -> logging.Handler:
    if is_journal(stream, environ) and Path(journal_socket).exists():  # RootDirectory= hides it
        return JournalHandler(journal_socket)
    descriptor = _reopen_nonblocking(stream)
    handler = logging.StreamHandler(stream) if descriptor is None else DescriptorHandler(descriptor)
    handler.setFormatter(TerminalFormatter() if stream.isatty() else JsonFormatter())
    return handler


def _reopen_nonblocking(stream: TextIO) -> int | None:
    """Open the pipe or terminal behind `stream` a second time, without blocking.

    Setting the flag on the given descriptor would set it for the shell that gave it, too. Returns
    None if `stream` is neither, or cannot be opened. Then a write may wait, except to a file.
    """
    try:
        number = stream.fileno()
        if not (stat.S_ISFIFO(os.fstat(number).st_mode) or os.isatty(number)):
            return None
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{number}", flags)
    except (OSError, ValueError):  # no file at all, closed, or another user's
        return None
