"""Where the cookie record lives: a sealed memfd.

It must survive a restart of the vault actor and may never reach a disk. An attribute on an object
that outlives the actor would do for the first; a memfd also can be handed to a service manager
that keeps descriptors across restarts of the process, which an attribute cannot. Each change makes
a new memfd, sealed against any further write, so that no reader ever sees half a record.
"""

from __future__ import annotations

import fcntl
import os
from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from daemon.vault.cookie import Cookie, parse_cookie

# linux/fcntl.h; the fcntl module has names for them only from Python 3.12 on
_F_ADD_SEALS = 1033
_ALL_SEALS = 0x0001 | 0x0002 | 0x0004 | 0x0008  # SEAL, SHRINK, GROW, WRITE

MAX_RECORD = 256 * 1024
"""Bytes; a cookie of 64 KiB, escaped as JSON, with its label."""


class Record(BaseModel):
    """The stored cookie with its label and the time of the last sync (aware, UTC)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    cookie_text: str = Field(repr=False)
    account_name: str
    synced_at: datetime

    @property
    def cookie(self) -> Cookie:
        return parse_cookie(self.cookie_text)


class RecordMemory:
    """Holds at most one record. Not shared: the vault actor is its only user."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def write(self, record: Record) -> None:
        """Replace the record."""
        descriptor = os.memfd_create("cookie", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(record.model_dump_json().encode())
            fcntl.fcntl(descriptor, _F_ADD_SEALS, _ALL_SEALS)
        except BaseException:
            os.close(descriptor)
            raise
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
