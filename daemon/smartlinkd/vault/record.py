"""The cookie record, and its copy in a sealed memfd for the next process. It never reaches a disk.

Each change makes a new memfd that nobody can write to, so no reader sees half a record. See
docs/decisions/023-cookie-in-a-memfd.md.
"""

from __future__ import annotations

import os
from datetime import datetime
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smartlinkd.errors import Invalid
from smartlinkd.memfd import sealed_file
from smartlinkd.vault.cookie import Cookie, parse_cookie

MAX_RECORD = 256 * 1024
"""Bytes that are read; a cookie of 64 KiB, escaped as JSON, with its label."""


class CookieRecord(BaseModel):
    """The stored cookie with its label and the time of the last sync (aware, UTC)."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)

    cookie_text: str = Field(repr=False)
    account_name: str
    synced_at: datetime

    # Cached, since every conversion needs it. It is no field, so it is in neither the record's text
    # nor its JSON.
    @cached_property
    def cookie(self) -> Cookie:
        return parse_cookie(self.cookie_text)


def sealed_record(record: CookieRecord) -> int:
    """Return the descriptor of a new sealed memfd with the record. The caller closes it.

    Raises `OSError` if no memory or descriptor is left.
    """
    return sealed_file("cookie", record.model_dump_json().encode())


def read_record(descriptor: int) -> CookieRecord | None:
    """Return the record behind a descriptor; None if it holds no valid one. It stays open."""
    try:
        record = CookieRecord.model_validate_json(os.pread(descriptor, MAX_RECORD, 0))
        parse_cookie(record.cookie_text)
    except (OSError, ValidationError, Invalid):
        return None
    return record
