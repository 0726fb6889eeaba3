"""The files of the auth actor, but for the API keys: what survives a restart. All functions block.

`auth.json` has the second factor and the epoch of valid tokens, `ended-sessions.json` the sessions
that a logout ended, `password-digest` the last password's digest, `signing-secret` the key of
tokens. A file that is damaged, of another version or readable by others stops the start with
`StateUnusable`; a damaged `password-digest` only ends every session. See
docs/decisions/031-files-and-tokens.md.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, TypeAdapter
from pydantic.dataclasses import dataclass as model

from smartlinkd.auth.totp import SecondFactor
from smartlinkd.state_files import (
    load_model,
    load_secret,
    parse_secret,
    read_private,
    replace_file,
)

logger = logging.getLogger(__name__)

STATE_FILE: Final = "auth.json"
SECRET_FILE: Final = "signing-secret"  # noqa: S105 - a file's name
PASSWORD_FILE: Final = "password-digest"  # noqa: S105 - a file's name
LOGOUTS_FILE: Final = "ended-sessions.json"
MAX_FILE: Final = 256 * 1024
"""Bytes read of a file; 1000 ended sessions take 46 KB, and the others less."""
MAX_LOGOUTS: Final = 1000
KEPT_AFTER_EXPIRY: Final = 86_400
"""Seconds; the clock may be set back meanwhile."""


@model(frozen=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class SavedState:
    """The content of `auth.json`."""

    version: Literal[1]
    epoch: str
    spared: str | None
    """The `jti` of the one token of an older epoch that is valid; None if there is none."""
    second_factor: SecondFactor | None


_SAVED = TypeAdapter(SavedState)


def new_epoch() -> str:
    """Return a random epoch: a counter could repeat one after the file was lost."""
    return secrets.token_hex(8)


def load(directory: Path) -> SavedState:
    """Return `auth.json`. Make one with the second factor off if there is none.

    Raises `StateUnusable`, or `NotSaved` if a new one could not be saved.
    """
    path = directory / STATE_FILE
    loss = "switches the second factor off and ends every session"
    found = load_model(path, _SAVED.validate_json, most=MAX_FILE, loss=loss)
    if found is None:
        saved = SavedState(version=1, epoch=new_epoch(), spared=None, second_factor=None)
        save(directory, saved)
        # If one of these is there `auth.json` was lost. Of both, the signing secret may be missing
        # although the daemon has run: the configuration can have it.
        started = any((directory / name).exists() for name in (SECRET_FILE, PASSWORD_FILE))
        level = logging.WARNING if started else logging.INFO
        logger.log(level, "%s was not there: made one, with the second factor off", path)
        return saved
    return found


def save(directory: Path, saved: SavedState) -> None:
    """Replace `auth.json`. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / STATE_FILE, _SAVED.dump_json(saved) + b"\n")


def end_sessions(saved: SavedState) -> SavedState:
    """Return `saved` with a new epoch, which ends all tokens."""
    return replace(saved, epoch=new_epoch(), spared=None)


def adopt_password(directory: Path, saved: SavedState, digest: str) -> SavedState:
    """Return the state to start with. A password that has changed since ends all sessions.

    The new epoch is saved before the new digest: a failure between the two ends the sessions again
    at the next start, and never leaves them valid.

    Raises `StateUnusable`, `NotSaved`, or `OSError` as `replace_file` does.
    """
    known = read_private(directory / PASSWORD_FILE, most=MAX_FILE)
    if known == _content(digest):
        return saved
    if known is not None:  # None at the first start, and after an upgrade from 0.1
        saved = end_sessions(saved)
        save(directory, saved)
        logger.warning(
            "the password, or the signing secret, is not the one of the last start: "
            "every session has ended"
        )
    save_password(directory, digest)
    return saved


def save_password(directory: Path, digest: str) -> None:
    """Replace `password-digest`. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / PASSWORD_FILE, _content(digest))


def _content(digest: str) -> bytes:
    return digest.encode() + b"\n"


def load_signing_secret(directory: Path, given: SecretStr) -> SecretBytes:
    """Return the 32 bytes that sign tokens: those that are given, else those of the file.

    A missing file is made. Raises `StateUnusable`, or `NotSaved` if it could not be made.
    """
    if given:
        return parse_secret(given)
    path = directory / SECRET_FILE
    return load_secret(path, name="the signing secret", loss="ends every session")


class Logouts(BaseModel):
    """The content of `ended-sessions.json`: each ended token's expiry (Unix seconds) by `jti`."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", hide_input_in_errors=True, defer_build=True
    )

    version: Literal[1] = 1
    ended: dict[str, int] = {}

    def with_ended(self, jti: str, expires_at: int, *, now: float) -> Logouts | None:
        """Return a copy with one more session; None if there would be too many."""
        kept = {
            each: expiry for each, expiry in self.ended.items() if expiry + KEPT_AFTER_EXPIRY > now
        }
        kept[jti] = expires_at
        return Logouts(ended=kept) if len(kept) <= MAX_LOGOUTS else None


def load_logouts(directory: Path) -> Logouts:
    """Return `ended-sessions.json`; no logouts if there is no file. Raises `StateUnusable`."""
    loss = (
        "makes sessions good again that were logged out in the last week (end them with "
        "`smartlinkd tokens revoke`)"
    )
    path = directory / LOGOUTS_FILE
    found = load_model(path, Logouts.model_validate_json, most=MAX_FILE, loss=loss)
    return found or Logouts()


def save_logouts(directory: Path, logouts: Logouts) -> None:
    """Replace `ended-sessions.json`. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / LOGOUTS_FILE, logouts.model_dump_json().encode() + b"\n")
