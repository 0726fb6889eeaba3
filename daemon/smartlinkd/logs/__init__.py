"""Logging: to systemd's journal, to a person at a terminal, or as JSON lines to a pipe.

What standard error is decides which (`setup.py`). A terminal shows fewer fields than the others. No
write waits for its reader. docs/decisions/010-log-output.md tells why, and what was rejected.

A secret never gets here: its holder wraps it in a type that hides it.
"""

from __future__ import annotations

from smartlinkd.logs.context import (
    LogContext,
    LogContextSet,
    bind_log_actor,
    bind_log_contexts,
    current_log_contexts,
    new_request_id,
)
from smartlinkd.logs.events import LogEvent
from smartlinkd.logs.formats import JsonFormatter
from smartlinkd.logs.setup import set_level, set_up

__all__ = [
    "JsonFormatter",
    "LogContext",
    "LogContextSet",
    "LogEvent",
    "bind_log_actor",
    "bind_log_contexts",
    "current_log_contexts",
    "new_request_id",
    "set_level",
    "set_up",
]
