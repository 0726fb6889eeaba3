"""What has to survive a restart: the signing secret, `auth.json`, and which password it was with.

`auth.json` holds the second factor and which tokens are good. Both are in one file because
switching the second factor on changes both, and one rename is the only way to change two things
at once that also holds when the power fails. It is replaced as a whole, and the caller is told
only when the disk has it.

A token is good when it carries the current `epoch`, or when it is the one that is `spared`. An
epoch is a random word and not a number that counts up: when the file is lost, the next one cannot
bring back tokens that were ended before.

Another password is another epoch too, or its tokens would be good again as soon as the old hash is
back in the configuration. So that a start finds out, `password-digest` has what the tokens carry of
the hash; with the signing secret beside it that lets nobody try a password, since the salt is in
the hash alone. It is a file of its own, and `auth.json` as it was: an older daemon refuses fields
that it does not know, and so an upgrade could not be taken back. The epoch is always saved first:
what fails between the two ends the sessions once more.

A file that is there but cannot be trusted (damaged, of another version, open to other users) is
never taken for an empty one, since that would switch the second factor off. The daemon then
refuses to start; the error names the file and what to do.

All functions here block for as long as the disk takes; the actor calls them in a thread.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from smartlinkd.auth.totp import SecondFactor
from smartlinkd.state import StateUnusable, load_secret, parse_secret, read_private, replace_file

logger = logging.getLogger(__name__)

STATE_FILE: Final = "auth.json"
SECRET_FILE: Final = "signing-secret"  # noqa: S105 - a file's name
PASSWORD_FILE: Final = "password-digest"  # noqa: S105 - a file's name
MAX_FILE: Final = 16 * 1024
"""Bytes read of `auth.json`; it has some 6 KiB at the most."""
MAX_PASSWORD_FILE: Final = 1024
"""Bytes read of `password-digest`; it has 33."""
LOGOUTS_FILE: Final = "ended-sessions.json"
MAX_LOGOUTS_FILE: Final = 256 * 1024
"""Bytes read of `ended-sessions.json`; 1000 sessions take 60 KB."""
MAX_LOGOUTS: Final = 1000
KEPT_AFTER_EXPIRY: Final = 86_400
"""Seconds; the clock may be set back meanwhile."""

_SIGNING_SECRET: Final = "the signing secret"  # noqa: S105 - what it is called


@model(frozen=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class Saved:
    """The content of `auth.json`."""

    version: Literal[1]
    epoch: str
    spared: str | None
    """The `jti` of the one older token that is still good."""
    second_factor: SecondFactor | None

    def admits(self, *, jti: str, epoch: str) -> bool:
        """Whether a token has not been ended early."""
        return epoch == self.epoch or jti == self.spared


_SAVED = TypeAdapter(Saved)


def new_epoch() -> str:
    """A name for a new era of tokens."""
    return secrets.token_hex(8)


def load(directory: Path) -> Saved:
    """The saved state; at the first start a new one, with the second factor off.

    Raises `StateUnusable`, or `NotSaved` at the first start.
    """
    path = directory / STATE_FILE
    content = read_private(path, most=MAX_FILE)
    if content is None:
        saved = Saved(version=1, epoch=new_epoch(), spared=None, second_factor=None)
        save(directory, saved)
        # With one of these there, this is no first start: somebody has lost the file. The signing
        # secret alone would not say so, since it can come from elsewhere.
        started = any((directory / name).exists() for name in (SECRET_FILE, PASSWORD_FILE))
        level = logging.WARNING if started else logging.INFO
        logger.log(level, "%s was not there: made one, with the second factor off", path)
        return saved
    try:
        return _SAVED.validate_json(content)
    except ValidationError:
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
            "or delete it, which switches the second factor off and ends every session"
        ) from None


def save(directory: Path, saved: Saved) -> None:
    """Replace the saved state. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / STATE_FILE, _SAVED.dump_json(saved) + b"\n")


def all_ended(saved: Saved) -> Saved:
    """The state with which no token is good that was made until now."""
    return replace(saved, epoch=new_epoch(), spared=None)


def begin_with_password(directory: Path, saved: Saved, digest: str) -> Saved:
    """The state to begin with: no session is left when the password is not the one of last time.

    Raises `StateUnusable`, `NotSaved`, or `OSError` as `replace_file` does.
    """
    known = read_private(directory / PASSWORD_FILE, most=MAX_PASSWORD_FILE)
    if known == _content(digest):
        return saved
    if known is not None:  # else this is the first start, or an older daemon did not save it
        saved = all_ended(saved)
        save(directory, saved)
        logger.warning(
            "the password, or the signing secret, is not the one of the last start: "
            "every session has ended"
        )
    save_password(directory, digest)
    return saved


def save_password(directory: Path, digest: str) -> None:
    """Remember which password it is. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / PASSWORD_FILE, _content(digest))


def _content(digest: str) -> bytes:
    return digest.encode() + b"\n"


def load_signing_secret(directory: Path) -> SecretBytes:
    """The 32 bytes that tokens are signed with, made at the first start.

    Raises `StateUnusable`, or `NotSaved` at the first start.
    """
    return load_secret(directory / SECRET_FILE, name=_SIGNING_SECRET, loss="ends every session")


def parse_signing_secret(text: SecretStr) -> SecretBytes:
    """The bytes of 64 hexadecimal digits. Raises `ValueError` without repeating them."""
    return parse_secret(text, name=_SIGNING_SECRET)


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
        return Logouts(ended=kept) if len(kept) <= MAX_LOGOUTS else None


def load_logouts(directory: Path) -> Logouts:
    """Return what is saved; no logouts when there is no file. Blocks. Raises `StateUnusable`."""
    path = directory / LOGOUTS_FILE
    content = read_private(path, most=MAX_LOGOUTS_FILE)
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
