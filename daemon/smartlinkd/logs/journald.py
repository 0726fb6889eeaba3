"""Records for systemd's journal, in its own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

The problem: the journal has fields to search by, but what a service writes to standard error is
lines of text to it: a traceback becomes thirty records, and nothing can be searched for.

The choice: each record is one datagram of fields to the journal's socket. A field whose value has a
control character, a line end above all, goes in the protocol's binary form, with its length before
it: no value can forge another field or a record. A record too large for a datagram goes as a
sealed memory file. Python's own bindings for that need libsystemd and a compiler; the protocol is
small, and documented to stay. In the text itself control characters are escaped: of a text with one
of them `journalctl` shows nothing but the length, or has the reader's terminal obey it (`-o cat`).

Logging may never hold up or end what it tells of. So nothing here waits: when the journal's socket
is not there or is full, the record goes to standard error as a line of JSON, which the journal
reads by another way, and when that is full too it is counted and let go. The count is told as soon
as the journal takes records again.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import stat
import traceback
from array import array
from collections.abc import Mapping
from typing import Final, TextIO

from smartlinkd.errors import leaves
from smartlinkd.logs.formats import (
    LONGEST_VALUE,
    code,
    context,
    cut,
    in_lines,
    message,
    trace,
)
from smartlinkd.sealed import sealed_file

IDENTIFIER: Final = "smartlinkd"
SOCKET: Final = "/run/systemd/journal/socket"

_PRIORITIES: Final = (  # by Python's levels; syslog(3)
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
)
_DEBUG: Final = 7
_TOO_LARGE: Final = (errno.EMSGSIZE, errno.ENOBUFS)
AT_ONCE: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL


def reads(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the journal is at the other end of `stream`: `JOURNAL_STREAM` in systemd.exec(5).

    Whoever redirects standard error of a service leaves the variable as it was, so it is compared.
    """
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    at_other_end = environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    return at_other_end and stat.S_ISSOCK(status.st_mode)


def entry(record: logging.LogRecord) -> bytes:
    """The record as the journal takes it."""
    told = trace(record)
    text = message(record)
    if told and record.exc_info and record.exc_info[1] is not None:
        text = f"{text}: {_in_a_line(record.exc_info[1])}"  # all that most readers look at
    fields = {
        "message": [in_lines(text)],
        "priority": [str(priority(record.levelno))],
        "syslog_identifier": [IDENTIFIER],
        "logger": [record.name],
        **context(record),
        **code(record),
        **({"exception": [told]} if told else {}),
    }
    pairs = ((name, value) for name, values in fields.items() for value in values)
    return b"".join(_field(name.upper(), value) for name, value in pairs)


class Journal:
    """The journal's socket, for as long as the process lives. Sends at once or not at all."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        # Not connected: the socket may be another one after the journal was started again.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def send(self, content: bytes) -> None:
        """One record. Raises `OSError`: it was not taken."""
        try:
            self._socket.sendto(content, AT_ONCE, self._path)
        except OSError as error:
            if error.errno not in _TOO_LARGE:
                raise
            self._send_file(content)

    def close(self) -> None:
        """Send no more."""
        self._socket.close()

    def _send_file(self, content: bytes) -> None:
        # The journal takes no other, which could be changed under its eyes.
        descriptor = sealed_file(IDENTIFIER, content)
        try:
            passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [descriptor]))
            self._socket.sendmsg([], [passed], AT_ONCE, self._path)
        finally:
            os.close(descriptor)


def _field(name: str, value: str) -> bytes:
    data = value.encode(errors="backslashreplace")
    if all(byte >= 0x20 for byte in data):
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)


def priority(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), _DEBUG)


def _in_a_line(error: BaseException) -> str:
    """An error's type and text; of a group its first member's."""
    if isinstance(error, BaseExceptionGroup):
        error = next(leaves(error))
    return cut(" ".join("".join(traceback.format_exception_only(error)).split()), LONGEST_VALUE)
