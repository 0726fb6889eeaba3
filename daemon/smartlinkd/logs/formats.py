"""A log record as fields, as a JSON object and as a line for a terminal. No I/O.

A field may have several values, as in the journal, since a submit is made for several requests.
JSON has a list then, as `journalctl -o json` does. Text from outside may hold anything: JSON
escapes it, and for terminals and the journal its control characters are shown as escapes.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime

from smartlinkd.logs.context import LogContext
from smartlinkd.logs.events import LogEvent
from smartlinkd.wire import timestamp

MAX_TRACEBACK_CHARS = 32 * 1024
MAX_MESSAGE_CHARS = 8 * 1024
MAX_VALUE_CHARS = 256
"""Characters of any other field."""

Fields = dict[str, list[str]]

# Noncharacters (Unicode Standard 23.7): the journal takes a field with one for binary data.
_NONCHARACTERS = (
    *range(0xFDD0, 0xFDF0),
    *(plane << 16 | end for plane in range(17) for end in (0xFFFE, 0xFFFF)),
)
# C0 and C1, since some terminals obey both; then line and paragraph separators and bidirectional
# controls, which make one text look like another.
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    code: f"\\u{code:04x}"
    for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A), *_NONCHARACTERS)
}
_ESCAPED_IN_LINES = {code: shown for code, shown in _ESCAPED.items() if chr(code) not in "\n\t"}
_SHOWN_ON_TERMINALS = ("request_id", "kickoff_id")


def message_text(record: logging.LogRecord) -> str:
    """Return the record's message, shortened to `MAX_MESSAGE_CHARS`."""
    return shorten(record.getMessage(), MAX_MESSAGE_CHARS)


def context_fields(record: logging.LogRecord) -> Fields:
    """Return the fields for the event, its subject, the writing actor and the log contexts."""
    fields: Fields = {}
    event: LogEvent | None = getattr(record, "event", None)
    if event is not None:
        fields["event"] = [event.name.lower()]
        fields["message_id"] = [event.message_id]
    contexts: tuple[LogContext, ...] = getattr(record, "log_contexts", ())
    about: dict[str, str] = getattr(record, "about", {})
    if actor := about.get("actor") or getattr(record, "actor", ""):
        fields["actor"] = [actor]
    for name in ("request_id", "crew", "kickoff_id", "account"):
        values = [about.get(name, ""), *(getattr(context, name, "") for context in contexts)]
        if found := list(dict.fromkeys(filter(None, values))):
            fields[name] = [shorten(value, MAX_VALUE_CHARS) for value in found]
    return fields


def code_fields(record: logging.LogRecord) -> Fields:
    """Return the fields for the place in the program that wrote the record."""
    return {
        "code_file": [record.pathname],
        "code_line": [str(record.lineno)],
        "code_func": [record.funcName or ""],
    }


def escape_controls(text: str) -> str:
    """Escape the control characters of a text, except for line ends and tabs."""
    return text.translate(_ESCAPED_IN_LINES)


def traceback_text(record: logging.LogRecord) -> str:
    """Return the record's traceback, escaped and shortened, or "" if it has none."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    text = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
    return shorten(escape_controls(text), MAX_TRACEBACK_CHARS)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (ISO 8601 UTC, milliseconds), level, logger, message, fields.

    An exception adds `exception`: its traceback as one text, with all members of a group.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {**context_fields(record), **code_fields(record)}
        line: dict[str, object] = {
            "time": timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message_text(record),
            **{name: values if len(values) > 1 else values[0] for name, values in fields.items()},
        }
        if exception := traceback_text(record):
            line["exception"] = exception
        return json.dumps(line)  # ASCII, so no locale can break it


class TerminalFormatter(logging.Formatter):
    """One line for people: local time, level, logger, message, ids. A traceback stands below."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        name = record.name.removeprefix("smartlinkd.")
        line = f"{moment:%H:%M:%S} {record.levelname:<7} {name}: {message_text(record)}"
        fields = context_fields(record)
        if ids := [" ".join(fields[name]) for name in _SHOWN_ON_TERMINALS if name in fields]:
            line += f" [{', '.join(ids)}]"
        line = line.translate(_ESCAPED)
        if exception := traceback_text(record):
            line = f"{line}\n{exception}"
        return line


def shorten(text: str, max_chars: int) -> str:
    """Cut out the middle of a text that is too long. Both of its ends tell the most."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} … {len(text) - 2 * half} characters left out … {text[-half:]}"
