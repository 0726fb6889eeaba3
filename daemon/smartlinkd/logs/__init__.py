"""Logging: to systemd's journal, to a person at a terminal, or as JSON lines to a pipe.

The problem: a traceback of thirty lines is thirty records to a log collector, an exception group
even more, and text from outside (an account's name, a page's message) can forge a line or move a
terminal's cursor. And whoever reads one line wants those that belong to it.

The choice: one handler, by what standard error is. Under a service manager that has the journal
there, records go to the journal in its own protocol (`journald.py`); at a terminal they are lines
to read, and elsewhere one JSON object a line (`formats.py`); nothing waits for who reads them
(`lines.py`). The fields are the same everywhere:
what happened, when it is worth finding (`events.py`), in which part, and for which request or
execution (`context.py`). Other people's loggers are heard from WARNING on; some of them log
addresses at INFO.

Secrets never get here: whoever holds one wraps it in a type that hides it. Rejected: a filter that
searches every record for the few secrets known at the start. It could not know the ones that
matter most (cookies, passwords, codes and tokens arrive later), and it would hide a leak from the
tests that look for one in the log, while the same leak goes on in an error's text.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from smartlinkd.logs import journald
from smartlinkd.logs.context import (
    InContext,
    Together,
    Work,
    acting_as,
    new_request_id,
    working_for,
    works,
)
from smartlinkd.logs.events import Event
from smartlinkd.logs.formats import LONGEST_MESSAGE, LONGEST_TRACE, ForTerminals, JsonLines
from smartlinkd.logs.lines import LineHandler, opened_again

__all__ = [
    "LONGEST_MESSAGE",
    "LONGEST_TRACE",
    "Event",
    "ForTerminals",
    "JsonLines",
    "Together",
    "Work",
    "acting_as",
    "new_request_id",
    "set_up",
    "working_for",
    "works",
]


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


def _handler(stream: TextIO, environ: Mapping[str, str]) -> logging.Handler:
    if journald.reads(stream, environ):
        return journald.JournalHandler(stream, journald.Journal())
    again = opened_again(stream)
    handler = logging.StreamHandler(stream) if again is None else LineHandler(again)
    handler.setFormatter(ForTerminals() if stream.isatty() else JsonLines())
    return handler
