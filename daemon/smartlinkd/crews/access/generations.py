"""Which generation of each crew token is the valid one: `crew-tokens.json`.

A token is derived from the master secret and a generation (see `tokens.py`), so to rotate it is to
give it another generation. A generation is a random word. With numbers that count up, a file that
is lost would start again at the first number, and every token that was ever rotated away, maybe
since it had leaked, would be valid again.

Tokens that were never rotated share one generation, `first`, which is made with the file. So crews
and users come into the configuration without anything being written, and the loss of the file
changes all tokens and brings none back. What was rotated stays in here under its name when the
crew or the user has left the configuration: a token that was rotated away stays dead should the
name return. The price is that a name which returns has the token that it had last.

A file that is there but cannot be trusted (damaged, of another version, open to other users) is
never taken for a missing one, or a bad block would lock every client out: the daemon refuses to
start, and the error names the file and what to do.

The functions here block for as long as the disk takes; the actor calls them in a thread.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as model

from smartlinkd.errors import Invalid
from smartlinkd.state_files import StateUnusable, read_private, replace_file

logger = logging.getLogger(__name__)

GENERATIONS_FILE: Final = "crew-tokens.json"
MAX_FILE: Final = 1024 * 1024
"""Bytes: some 10 000 rotated tokens, far more than a configuration has at any time."""

_Word = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


@model(frozen=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class Generations:
    """The content of the file. `rotated` is by crew and user; the organization is the user ""."""

    version: Literal[1]
    first: _Word
    rotated: dict[str, dict[str, _Word]]

    def of(self, crew: str, user: str) -> str:
        """The generation of a token."""
        return self.rotated.get(crew, {}).get(user, self.first)

    def with_new(self, crew: str, user: str) -> Generations:
        """The same with another generation for one token."""
        of_crew = {**self.rotated.get(crew, {}), user: _new_word()}
        return Generations(version=1, first=self.first, rotated={**self.rotated, crew: of_crew})


_GENERATIONS = TypeAdapter(Generations)


def load(directory: Path) -> Generations:
    """What is saved; when there is no file a new one, with which every token is another.

    Raises `StateUnusable`, or `NotSaved` when it was to be made.
    """
    path = directory / GENERATIONS_FILE
    content = read_private(path, most=MAX_FILE)
    if content is None:
        fresh = Generations(version=1, first=_new_word(), rotated={})
        save(directory, fresh)
        logger.info("%s was not there: made one; the tokens of all crews are new", path)
        return fresh
    try:
        return _GENERATIONS.validate_json(content)
    except ValidationError:
        raise StateUnusable(
            f"{path} is damaged, or of another version of smartlinkd: restore it from a backup, "
            "or delete it, which gives every crew new tokens"
        ) from None


def save(directory: Path, generations: Generations) -> None:
    """Replace what is saved.

    Raises `Invalid` when there is too much of it, `NotSaved`, or `OSError` as `replace_file` does.
    """
    path = directory / GENERATIONS_FILE
    content = _GENERATIONS.dump_json(generations) + b"\n"
    if len(content) > MAX_FILE:
        raise Invalid(
            f"{path} would have more than {MAX_FILE} bytes; stop the daemon and delete the file, "
            "which gives every crew new tokens"
        )
    replace_file(path, content)


def _new_word() -> str:
    return secrets.token_hex(16)
