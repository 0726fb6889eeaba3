"""The last log records, kept in memory for the owner's page."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from pydantic import Field

from smartlinkd.logs import formats
from smartlinkd.logs.context import ContextFilter
from smartlinkd.wire import Body, Timestamp

MAX_RECORDS = 500
LONGEST_MESSAGE = 2048
"""Characters of a record's message. With 500 records that is at most a few megabytes."""


class LogEntry(Body):
    """One record of the daemon's log."""

    at: Timestamp
    level: str
    logger: str
    message: str
    actor: str | None = Field(description="the part that wrote it")
    event: str | None = Field(description="set for what a monitor may look for")
    request_id: str | None


class LogBuffer(logging.Handler):
    """A logging handler that keeps the newest records and forgets the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(ContextFilter())
        self._records: deque[LogEntry] = deque(maxlen=MAX_RECORDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record. Errors of its formatting go to `logging`'s own error handling."""
        try:
            fields = formats.context_fields(record)
            # A file's name may have half characters, which no JSON holds.
            message = record.getMessage().encode(errors="backslashreplace").decode()
            self._records.append(
                LogEntry(
                    at=datetime.fromtimestamp(record.created, UTC),
                    level=record.levelname.lower(),
                    logger=record.name,
                    message=formats.shorten(message, LONGEST_MESSAGE),
                    actor=next(iter(fields.get("actor", [])), None),
                    event=next(iter(fields.get("event", [])), None),
                    request_id=next(iter(fields.get("request_id", [])), None),
                )
            )
        except Exception:  # noqa: BLE001 - as every handler of `logging`: it must not raise
            self.handleError(record)

    def find(self, *, level: str, text: str, limit: int) -> list[LogEntry]:
        """Return the newest records from `level` on with `text` in them, newest first."""
        least = logging.getLevelNamesMapping()[level.upper()]
        wanted = text.casefold()
        found: list[LogEntry] = []
        for record in reversed(tuple(self._records)):
            if len(found) == limit:
                break
            shown = f"{record.logger} {record.message} {record.request_id or ''}"
            is_loud = logging.getLevelNamesMapping()[record.level.upper()] >= least
            if is_loud and wanted in shown.casefold():
                found.append(record)
        return found

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Keep what is logged during the block."""
        root = logging.getLogger()
        root.addHandler(self)
        try:
            yield
        finally:
            root.removeHandler(self)
