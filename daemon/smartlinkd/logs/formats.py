"""A record as its fields, as one JSON object, and as a line to read: no I/O in here.

A field may have several values, as in the journal: a submit is made for several requests. In JSON
such a one is a list, which is also how `journalctl -o json` shows it.

Text from outside (an account's name, a page's message) may hold anything: in JSON it is escaped,
for a terminal and for the journal its control characters are shown as their escapes.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime

from smartlinkd.logs.context import Work
from smartlinkd.logs.events import Event

LONGEST_TRACE = 32 * 1024  # characters; of a longer one, both ends tell the most
LONGEST_MESSAGE = 8 * 1024  # characters
LONGEST_VALUE = 256  # characters of any other field

Fields = dict[str, list[str]]

# Control characters as their escapes; C1 too, since some terminals obey them. What ends a line or
# turns the direction of writing, so that a text looks like another. And what is no character (the
# Unicode Standard, 23.7), which the journal takes for a sign of binary data.
_NO_CHARACTERS = (
    *range(0xFDD0, 0xFDF0),
    *(plane << 16 | end for plane in range(17) for end in (0xFFFE, 0xFFFF)),
)
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}"
    for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A), *_NO_CHARACTERS)
}
_ESCAPED_IN_LINES = {code: shown for code, shown in _ESCAPED.items() if chr(code) not in "\n\t"}
_ON_TERMINALS = ("request_id", "kickoff_id")


def message(record: logging.LogRecord) -> str:
    """Its text, not endless."""
    return cut(record.getMessage(), LONGEST_MESSAGE)


def context(record: logging.LogRecord) -> Fields:
    """Which event it is, what it is about, which part wrote it and whom it works for."""
    fields: Fields = {}
    event: Event | None = getattr(record, "event", None)
    if event is not None:
        fields["event"] = [event.name.lower()]
        fields["message_id"] = [event.message_id]
    works: tuple[Work, ...] = getattr(record, "works", ())
    about: dict[str, str] = getattr(record, "about", {})
    if actor := about.get("actor") or getattr(record, "actor", ""):
        fields["actor"] = [actor]
    for name in ("request_id", "crew", "kickoff_id", "account"):
        values = [about.get(name, ""), *(getattr(work, name, "") for work in works)]
        if found := list(dict.fromkeys(filter(None, values))):
            fields[name] = [cut(value, LONGEST_VALUE) for value in found]
    return fields


def code(record: logging.LogRecord) -> Fields:
    """Where in the program it was written."""
    return {
        "code_file": [record.pathname],
        "code_line": [str(record.lineno)],
        "code_func": [record.funcName or ""],
    }


def in_lines(text: str) -> str:
    """A text of several lines, with control characters but line ends and tabs escaped."""
    return text.translate(_ESCAPED_IN_LINES)


def trace(record: logging.LogRecord) -> str:
    """The traceback or stack of a record, control characters escaped as `in_lines`; may be ""."""
    parts = []
    if record.exc_info and record.exc_info[1] is not None:
        parts.append("".join(traceback.format_exception(record.exc_info[1])).rstrip())
    if record.stack_info:
        parts.append(record.stack_info)
    return cut(in_lines("\n".join(parts)), LONGEST_TRACE)


class JsonLines(logging.Formatter):
    """One object a line: time (ISO 8601 UTC, milliseconds), level, logger, message, the context and
    the place in the program.

    An exception adds `exception`, its traceback as one text with all members of a group.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {**context(record), **code(record)}
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message(record),
            **{name: values if len(values) > 1 else values[0] for name, values in fields.items()},
        }
        if told := trace(record):
            line["exception"] = told
        return json.dumps(line)  # ASCII, so it is whole in every locale


class ForTerminals(logging.Formatter):
    """A line to read: local time, level, logger and message, whom it is for; a traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        name = record.name.removeprefix("smartlinkd.")
        line = f"{moment:%H:%M:%S} {record.levelname:<7} {name}: {message(record)}"
        fields = context(record)
        told = [" ".join(fields[name]) for name in _ON_TERMINALS if name in fields]
        if told:
            line += f" [{', '.join(told)}]"
        line = line.translate(_ESCAPED)
        if below := trace(record):
            line = f"{line}\n{below}"
        return line


def cut(text: str, longest: int) -> str:
    """A text that is too long, without its middle."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
