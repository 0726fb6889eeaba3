"""Where the cookie record lives: a sealed memfd.

It must survive a restart of the vault actor and may never reach a disk. An attribute on an object
that outlives the actor would do for the first; a memfd also can be handed to a service manager
that keeps descriptors across restarts of the process (a `Keeper`), which an attribute cannot.
Each change makes a new memfd, sealed against any further write, so that no reader ever sees half a
record.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import cached_property
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smartlinkd.errors import Invalid
from smartlinkd.sealed import is_sealed, sealed_file
from smartlinkd.vault.cookie import Cookie, parse_cookie

MAX_RECORD = 256 * 1024
"""Bytes; a cookie of 64 KiB, escaped as JSON, with its label."""


class Record(BaseModel):
    """The stored cookie with its label and the time of the last sync (aware, UTC)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)

    cookie_text: str = Field(repr=False)
    account_name: str
    synced_at: datetime

    # Cached: every conversion asks for it. It goes with the record, and is in neither its text nor
    # what is kept of it for the next process.
    @cached_property
    def cookie(self) -> Cookie:
        return parse_cookie(self.cookie_text)


class Keeper(Protocol):
    """Keeps the newest record's descriptor for the next process. Never waits, never fails."""

    def keep(self, descriptor: int) -> None:
        """This one from now on. It is the caller's, who closes it with the next change."""


class NotARecord(Exception):  # noqa: N818 - it says what a descriptor is
    """A descriptor that came from elsewhere is not one of ours; the text says why."""


class RecordMemory:
    """Holds at most one record. Not shared: the vault actor is its only user."""

    def __init__(self, keeper: Keeper | None = None) -> None:
        self._descriptor: int | None = None
        self._keeper = keeper

    def write(self, record: Record) -> None:
        """Replace the record."""
        descriptor = sealed_file("cookie", record.model_dump_json().encode())
        if self._keeper is not None:
            self._keeper.keep(descriptor)
        self.close()
        self._descriptor = descriptor

    def read(self) -> Record | None:
        """The record, or None when none was written."""
        if self._descriptor is None:
            return None
        return Record.model_validate_json(os.pread(self._descriptor, MAX_RECORD, 0))

    def close(self) -> None:
        """Forget the record."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        # The vault's actors come and go, and nobody stops the vault itself: this is its end.
        self.close()


def read_sealed(descriptor: int) -> Record:
    """The record behind a descriptor that was kept elsewhere; it stays open.

    What can still be changed by somebody is no record, whatever it says. Raises `NotARecord`, whose
    text shows nothing of it.
    """
    try:
        if not is_sealed(descriptor):
            raise NotARecord("it is not sealed")
        size = os.fstat(descriptor).st_size
        if size > MAX_RECORD:
            raise NotARecord(f"it has {size} bytes, and a record at most {MAX_RECORD}")
        record = Record.model_validate_json(os.pread(descriptor, MAX_RECORD, 0))
        parse_cookie(record.cookie_text)
    except OSError as error:
        raise NotARecord(f"it cannot be read ({error.strerror})") from None
    except (ValidationError, Invalid):
        raise NotARecord("there is no stored cookie in it") from None
    return record
