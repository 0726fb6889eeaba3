"""systemd's journal in its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL).

Each record is one datagram of fields, which it fits into: all of its texts are bounded. A value
with a control character, a line end above all, goes in the binary form with its length in front, so
no value can forge a field or a record.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from typing import Final, TextIO

from smartlinkd.errors import describe
from smartlinkd.logs.formats import (
    MAX_VALUE_CHARS,
    code_fields,
    context_fields,
    escape_controls,
    message_text,
    shorten,
    traceback_text,
)

IDENTIFIER: Final = "smartlinkd"
SOCKET: Final = "/run/systemd/journal/socket"

_PRIORITIES: Final = {50: 2, 40: 3, 30: 4, 20: 6, 10: 7}
"""syslog(3)'s by Python's levels."""


def is_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return True if the journal reads `stream` (`JOURNAL_STREAM` in systemd.exec(5))."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # closed, or no file at all
        return False
    # The variable stays set when a service's standard error is redirected, so it is compared.
    is_same = environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"
    return is_same and stat.S_ISSOCK(status.st_mode)


def encode_entry(record: logging.LogRecord) -> bytes:
    """Encode a record as a journal entry."""
    exception = traceback_text(record)
    text = message_text(record)
    if exception and record.exc_info and record.exc_info[1] is not None:
        # `journalctl` shows nothing else.
        text = f"{text}: {shorten(describe(record.exc_info[1]), MAX_VALUE_CHARS)}"
    fields = {
        # Of a text with control characters `journalctl` shows only the length, or with `-o cat`
        # the reader's terminal obeys them.
        "message": [escape_controls(text)],
        "priority": [str(_priority(record.levelno))],
        "syslog_identifier": [IDENTIFIER],
        "logger": [record.name],
        **context_fields(record),
        **code_fields(record),
        **({"exception": [exception]} if exception else {}),
    }
    pairs = ((name, value) for name, values in fields.items() for value in values)
    return b"".join(_encode_field(name.upper(), value) for name, value in pairs)


def _priority(level: int) -> int:
    """Return the syslog priority of a logging level."""
    return _PRIORITIES[min(max(level // 10 * 10, 10), 50)]


def _encode_field(name: str, value: str) -> bytes:
    data = value.encode(errors="backslashreplace")
    if all(byte >= 0x20 for byte in data):
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), len(data).to_bytes(8, "little"), data)
