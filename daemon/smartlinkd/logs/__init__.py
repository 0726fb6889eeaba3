"""Logging: to systemd's journal, to a person at a terminal, or as JSON lines to a pipe.

The problem: a traceback of thirty lines is thirty records to a log collector, an exception group
even more, and text from outside (an account's name, a page's message) can forge a line or move a
terminal's cursor. And whoever reads one line wants those that belong to it.

The choice: one handler, by what standard error is. Under a service manager that has the journal
there, records go to the journal in its own protocol (`journald.py`); at a terminal they are lines
to read, and elsewhere one JSON object a line (`formats.py`); nothing waits for who reads them
(`setup.py`). The fields are the same everywhere:
what happened, when it is worth finding (`events.py`), in which part, and for which request or
execution (`context.py`). Other people's loggers are heard from WARNING on; some of them log
addresses at INFO.

Secrets never get here: whoever holds one wraps it in a type that hides it. Rejected: a filter that
searches every record for the few secrets known at the start. It could not know the ones that
matter most (cookies, passwords, codes and tokens arrive later), and it would hide a leak from the
tests that look for one in the log, while the same leak goes on in an error's text.
"""

from __future__ import annotations

from smartlinkd.logs.context import (
    Together,
    Work,
    acting_as,
    new_request_id,
    working_for,
    works,
)
from smartlinkd.logs.events import Event
from smartlinkd.logs.formats import LONGEST_MESSAGE, LONGEST_TRACE, ForTerminals, JsonLines
from smartlinkd.logs.setup import set_level, set_up

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
    "set_level",
    "set_up",
    "working_for",
    "works",
]
