"""What has to survive a restart: the signing secret, and `auth.json`.

`auth.json` holds the second factor and which tokens are good. Both are in one file because
switching the second factor on changes both, and one rename is the only way to change two things
at once that also holds when the power fails. It is replaced as a whole, and the caller is told
only when the disk has it.

A token is good when it carries the current `epoch`, or when it is the one that is `spared`. An
epoch is a random word and not a number that counts up: when the file is lost, the next one cannot
bring back tokens that were ended before.

A file that is there but cannot be trusted (damaged, of another version, open to other users) is
never taken for an empty one, since that would switch the second factor off. The daemon then
refuses to start; the error names the file and what to do.

All functions here block for as long as the disk takes; the actor calls them in a thread.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from daemon.auth.second_factor import SecondFactor
from daemon.state import StateUnusable

logger = logging.getLogger(__name__)

STATE_FILE: Final = "auth.json"
SECRET_FILE: Final = "signing-secret"  # noqa: S105 - a file's name
MAX_FILE: Final = 16 * 1024
"""Bytes read of either file; both have less than 1 KiB."""

_OTHERS: Final = 0o077
_SECRET = re.compile(r"[0-9a-fA-F]{64}")


class NotSaved(Exception):  # noqa: N818 - said of the change, which did not happen
    """A file could not be written. The one that was there is untouched."""


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
    content = _read_private(path)
    if content is None:
        saved = Saved(version=1, epoch=new_epoch(), spared=None, second_factor=None)
        save(directory, saved)
        # With the signing secret there, this is no first start: somebody has lost the file.
        level = logging.WARNING if (directory / SECRET_FILE).exists() else logging.INFO
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


def load_signing_secret(directory: Path) -> SecretBytes:
    """The 32 bytes that tokens are signed with, made at the first start.

    Raises `StateUnusable`, or `NotSaved` at the first start.
    """
    path = directory / SECRET_FILE
    content = _read_private(path)
    if content is None:
        content = secrets.token_hex(32).encode()
        replace_file(path, content + b"\n")
        logger.info("made the signing secret %s", path)
    try:
        return parse_signing_secret(SecretStr(content.decode("ascii").strip()))
    except ValueError:
        raise StateUnusable(
            f"{path} must hold 64 hexadecimal digits: restore it from a backup, or delete it, "
            "which makes a new one and ends every session"
        ) from None


def parse_signing_secret(text: SecretStr) -> SecretBytes:
    """The bytes of 64 hexadecimal digits. Raises `ValueError` without repeating them."""
    digits = text.get_secret_value()
    if not _SECRET.fullmatch(digits):
        raise ValueError(
            "the signing secret must be 64 hexadecimal digits; make one with: openssl rand -hex 32"
        )
    return SecretBytes(bytes.fromhex(digits))


def replace_file(path: Path, content: bytes) -> None:
    """Give `path` a new content, mode 0600, so that a reader or a crash sees the old or the new.

    Raises `NotSaved` while the old file is still in place. An `OSError` is worse: the new file is
    in place, but the disk may not have it; the caller has to read it again before it goes on.
    """
    fresh = path.with_name(f".{path.name}.new")  # one name, so that crashes leave one at most
    try:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise NotSaved(f"{path} could not be written: {error.strerror}") from error
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_private(path: Path) -> bytes | None:
    """The content of a file that is only ours, None when there is none."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnusable(
            f"{path} cannot be read: {error.strerror}; let the daemon's user read it"
        ) from error
    if mode & _OTHERS:
        raise StateUnusable(
            f"{path} is open to other users: run `chmod 600 {path}`, and if one of them may have "
            "read it, delete it and set up again"
        )
    return content
