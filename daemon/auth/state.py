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
import secrets
from pathlib import Path
from typing import Final, Literal

from pydantic import ConfigDict, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from daemon.auth.second_factor import SecondFactor
from daemon.state import StateUnusable, load_secret, parse_secret, read_private, replace_file

logger = logging.getLogger(__name__)

STATE_FILE: Final = "auth.json"
SECRET_FILE: Final = "signing-secret"  # noqa: S105 - a file's name
MAX_FILE: Final = 16 * 1024
"""Bytes read of `auth.json`; it has some 6 KiB at the most."""

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
    return load_secret(directory / SECRET_FILE, name=_SIGNING_SECRET, loss="ends every session")


def parse_signing_secret(text: SecretStr) -> SecretBytes:
    """The bytes of 64 hexadecimal digits. Raises `ValueError` without repeating them."""
    return parse_secret(text, name=_SIGNING_SECRET)
