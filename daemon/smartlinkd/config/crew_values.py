"""What the values of one `[[crews]]` table look like: pure rules, as in `values.py`.

The names of inputs are those that CrewAI replaces in its prompts, for every runner: an input that
cannot be named in a prompt would be of use to some crews only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import JsonValue, SecretStr

from smartlinkd.validation import BadValue, require_text

LONGEST_ARGUMENT = 32 * 1024  # bytes; a quarter of what Linux takes (MAX_ARG_STRLEN)
MOST_VARIABLES = 128
LONGEST_INPUT_NAME = 100
LONGEST_DESCRIPTION = 2000
DEEPEST_DEFAULT = 20  # levels of lists and tables

# It stands in addresses, in folders' names and in a shell's command line.
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# POSIX: what a shell can name; lower-case letters are for programs, and in use.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_INPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_INPUT_KEYS = ("name", "required", "default", "description")
# What every worker is given by the daemon (see docs/crew-workers.md), in place of anything else.
_OURS = ("HOME", "TMPDIR")
_OUR_PREFIX = "SMARTLINKD_"


@dataclass(frozen=True)
class InputTable:
    """An input as it is configured. `required` is None where nothing was said of that.

    `default` is only of meaning for one that is not required.
    """

    name: str
    required: bool | None = None
    default: JsonValue = None
    description: str = ""


def slug(value: object) -> str:
    """The name of a crew, or of one of its users."""
    given = require_text(value)
    if not _SLUG.fullmatch(given):
        raise BadValue(
            "must be 1 to 63 lower-case letters, digits and hyphens, the first no hyphen"
        )
    return given


def argument(value: object) -> str:
    """One word of a command."""
    return _for_a_process(value)


def variable(value: object) -> str:
    """The name of an environment variable that a worker can be given."""
    name = require_text(value)
    if not _VARIABLE.fullmatch(name):
        raise BadValue(
            "is no name for a variable",
            "use letters, digits and underscores, with no digit at the start",
        )
    if name in _OURS or name.startswith(_OUR_PREFIX):
        raise BadValue(
            "is set by the daemon, for every worker anew", "leave it out, or choose another name"
        )
    return name


def variable_value(value: object) -> SecretStr:
    """The value of an environment variable. Most are keys, so all are treated as secrets."""
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    try:
        return SecretStr(_for_a_process(value))
    except BadValue as fault:
        raise BadValue(fault.fault, fault.remedy or "put quotes around it") from None


def given_input(value: object) -> InputTable:
    """An input: its name alone, or a table of name, required, default and description."""
    if isinstance(value, InputTable):
        return value
    if isinstance(value, str):
        return InputTable(input_name(value))
    if not isinstance(value, Mapping):
        raise BadValue("must be a name in quotes or a table")
    unknown = set(value) - set(_INPUT_KEYS)
    if unknown or "name" not in value:
        raise BadValue(f"takes {', '.join(_INPUT_KEYS)}, and needs the name")
    name = input_name(value["name"])
    required, description = value.get("required"), value.get("description", "")
    if not (required is None or isinstance(required, bool)):
        raise BadValue("has a `required` that is neither true nor false")
    if not isinstance(description, str) or len(description) > LONGEST_DESCRIPTION:
        raise BadValue(f"has a `description` that is no text of at most {LONGEST_DESCRIPTION}")
    if "default" not in value:
        return InputTable(name, required, description=description)
    if required:
        raise BadValue("is required and has a default", "keep one of the two")
    return InputTable(name, False, given_default(value["default"]), description)


def input_name(value: object) -> str:
    """The name of an input."""
    name = require_text(value)
    if not _INPUT.fullmatch(name) or len(name) > LONGEST_INPUT_NAME:
        raise BadValue(
            f"must have a name of letters, digits, _ and -, at most {LONGEST_INPUT_NAME}, that "
            "begins with a letter or _"
        )
    return name


def each_once(names: Sequence[str]) -> None:
    """Raise a `BadValue` when a name comes twice."""
    if len(set(names)) < len(names):
        raise BadValue("names one twice", "keep one of them")


def given_default(value: object, level: int = 0) -> JsonValue:
    """A default, which goes to the worker as JSON. `level` is that of the list or table it is in.

    TOML has dates and infinities besides, and a JSON crew's own file the latter.
    """
    if level > DEEPEST_DEFAULT:
        raise BadValue(f"has a default that is nested more than {DEEPEST_DEFAULT} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue("has a default that is no number in JSON", "write it as text, in quotes")
    if isinstance(value, str):
        return whole(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {whole(str(key)): given_default(inner, level + 1) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [given_default(inner, level + 1) for inner in cast("Sequence[object]", value)]
    raise BadValue("has a default that JSON cannot hold", "write a date as text, in quotes")


def whole(given: str) -> str:
    """Text that UTF-8 can write. JSON, with its escapes, can say other."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise BadValue("must not hold half of a character", "write it anew") from None
    return given


def _for_a_process(value: object) -> str:
    """Text that the kernel passes on to a program."""
    given = require_text(value)
    if "\0" in given:
        raise BadValue("must not hold a NUL character", "take it out: no program can be given one")
    if len(whole(given).encode()) > LONGEST_ARGUMENT:
        raise BadValue(
            f"must be at most {LONGEST_ARGUMENT} bytes", "put it into a file, and name that"
        )
    return given
