"""Sessions that ended one by one, by a logout: `ended-sessions.json`.

A session token is good by its signature alone, so one that was logged out is remembered until it
would have expired. This is no part of `auth.json`, in which an older daemon refuses fields that it
does not know.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from smartlinkd.state import StateUnusable, read_private, replace_file

LOGOUTS_FILE: Final = "ended-sessions.json"
MAX_FILE: Final = 256 * 1024
"""Bytes read of the file; 1000 sessions take 60 KB."""
MOST_ENDED: Final = 1000
KEPT_AFTER_EXPIRY: Final = 86_400
"""Seconds; the clock may be set back meanwhile."""


class Logouts(BaseModel):
    """The content of the file. `ended` has each token's expiry (Unix seconds) by its `jti`."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", hide_input_in_errors=True, defer_build=True
    )

    version: Literal[1] = 1
    ended: dict[str, int] = {}

    def with_ended(self, jti: str, expires_at: int, *, now: float) -> Logouts | None:
        """Return the same with one more session; None when there is no room for it."""
        kept = {
            each: expiry for each, expiry in self.ended.items() if expiry + KEPT_AFTER_EXPIRY > now
        }
        kept[jti] = expires_at
        return Logouts(ended=kept) if len(kept) <= MOST_ENDED else None


def load_logouts(directory: Path) -> Logouts:
    """Return what is saved; no logouts when there is no file. Blocks. Raises `StateUnusable`."""
    path = directory / LOGOUTS_FILE
    content = read_private(path, most=MAX_FILE)
    if content is None:
        return Logouts()
    try:
        return Logouts.model_validate_json(content)
    except ValidationError:
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
            "or delete it, which makes sessions good again that were logged out in the last week "
            "(end them with `smartlinkd tokens revoke`)"
        ) from None


def save_logouts(directory: Path, logouts: Logouts) -> None:
    """Replace the file. Blocks. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / LOGOUTS_FILE, logouts.model_dump_json().encode() + b"\n")
