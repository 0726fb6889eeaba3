"""Logging: for a person at a terminal, or one JSON object a line for a program behind a pipe.

The problem: a traceback of thirty lines is thirty records to a log collector, an exception group
even more, and text from outside (an account's name, a page's message) can forge a line or move a
terminal's cursor.

The choice: one handler on standard error, and two formatters. In JSON a record is one line with its
traceback inside; for a terminal control characters of the message are shown escaped. Other
people's loggers are heard from WARNING on; some of them log addresses at INFO.

Secrets never get here: whoever holds one wraps it in a type that hides it. Rejected: a filter that
searches every record for the few secrets known at the start. It could not know the ones that
matter most (cookies, passwords, codes and tokens arrive later), and it would hide a leak from the
tests that look for one in the log, while the same leak goes on in an error's text.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import TextIO

LONGEST_TRACE = 32 * 1024  # characters; of a longer one, both ends tell the most
LONGEST_MESSAGE = 8 * 1024  # characters

# Control characters as their escapes; C1 too, since some terminals obey them.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def set_up(level: str, stream: TextIO | None = None) -> None:
    """Send the log to `stream` (standard error), ours from `level` ("debug", "info", …) on.

    Called again it replaces what it set up before.
    """
    stream = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ForTerminals() if stream.isatty() else JsonLines())
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, (JsonLines, ForTerminals)):
            root.removeHandler(old)
    root.addHandler(handler)
    ours = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(ours, logging.WARNING))
    logging.getLogger("daemon").setLevel(ours)
    logging.captureWarnings(True)


class JsonLines(logging.Formatter):
    """One object a line: time (ISO 8601 UTC, milliseconds), level, logger, message.

    An exception adds `exception`, its traceback as one text with all members of a group.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage(), LONGEST_MESSAGE),
        }
        if trace := _trace(record):
            line["exception"] = trace
        return json.dumps(line)  # ASCII, so it is whole in every locale


class ForTerminals(logging.Formatter):
    """A line to read: local time, level, logger and message; a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        name = record.name.removeprefix("daemon.")
        message = _cut(record.getMessage(), LONGEST_MESSAGE)
        line = f"{moment:%H:%M:%S} {record.levelname:<7} {name}: {message}"
        line = line.translate(_ESCAPED)
        if trace := _trace(record):
            line = f"{line}\n{trace}"
        return line


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(record: logging.LogRecord) -> str:
    """The traceback or stack of a record, control characters but line ends escaped."""
    parts = []
    if record.exc_info and record.exc_info[1] is not None:
        parts.append("".join(traceback.format_exception(record.exc_info[1])).rstrip())
    if record.stack_info:
        parts.append(record.stack_info)
    shown = (line.translate(_ESCAPED) for line in "\n".join(parts).split("\n"))
    return _cut("\n".join(shown), LONGEST_TRACE)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"
