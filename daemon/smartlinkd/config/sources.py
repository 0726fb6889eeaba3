"""The sources of a configuration: its TOML file, and variables of the environment over it.

Each step of reading fills one `Draft`, and adds its problems instead of raising the first one.
Files of secrets are read afterwards (`config/secret_files.py`).
"""

from __future__ import annotations

import codecs
import difflib
import json
import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from smartlinkd.config.crews import CrewDraft, draft_crews
from smartlinkd.config.problems import MANY, Problem, example_of, quoted_key, toml_remedy
from smartlinkd.config.settings import SECRETS, SECTIONS
from smartlinkd.validation import BadValue

LONGEST_FILE = 1024 * 1024  # bytes; a configuration of some hundred tables fits
PREFIX = "SMARTLINKD_"

Key = tuple[str, str]  # section and key


@dataclass
class Draft:
    """A configuration before its check: the values as given, and the problems found so far.

    `variables` and `files` name what gave a key its value: a variable, and a `…_file` key or a
    credential. The secrets in `encrypted` have no value: only the service can read them.
    """

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    crews: list[CrewDraft] = field(default_factory=list)
    variables: dict[Key, str] = field(default_factory=dict)
    files: dict[Key, str] = field(default_factory=dict)
    encrypted: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def value(self, section: str, key: str) -> Any:
        """Return the value that was given for a key, or None."""
        return self.tables.get(section, {}).get(key)

    def is_given(self, section: str, key: str) -> bool:
        """Return True if a secret has a value, in place or by a file that may be faulty."""
        by_file = self.value(section, f"{key}_file") or (section, key) in self.files
        return bool(self.value(section, key) or by_file)

    def set(self, section: str, key: str, value: object) -> None:
        """Set a key's value."""
        self.tables.setdefault(section, {})[key] = value

    def name(self, section: str, key: str) -> str:
        """Return the operator's name for a key: its file, its variable, or its place in TOML."""
        at = (section, key)
        return self.files.get(at) or self.variables.get(at) or f"{section}.{quoted_key(key)}"

    def remedy(self, section: str, key: str, example: object) -> str:
        """Return how an example is written where the key's value came from."""
        variable = self.variables.get((section, key))
        if variable is None:
            return toml_remedy(section, key, example)
        return _variable_example(variable, example)


def read_tables(draft: Draft, path: Path) -> dict[str, Any] | None:
    """Return the TOML file's content; None, and a problem in the draft, if it cannot be read."""
    try:
        content, mode = read_file(path, LONGEST_FILE)
        found = tomllib.loads(content)
    except BadValue as fault:
        draft.problems.append(Problem(str(path), fault.fault, fault.remedy))
        return None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        draft.problems.append(
            Problem(str(path), f"is not TOML: {why}", "compare it with config.example.toml")
        )
        return None
    if mode & stat.S_IROTH:
        _warn_of_open_secrets(draft, found, path)
    return found


def override(draft: Draft, environ: Mapping[str, str]) -> None:
    """Set the values of `SMARTLINKD_SECTION__KEY` variables over those of the file.

    Text is used as it is; numbers, booleans, lists and tables are JSON. A variable with the prefix
    and two underscores that names no key is a problem. Other variables belong to somebody else.
    """
    for variable in sorted(environ):
        section, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not (variable.startswith(PREFIX) and separator):
            continue
        field = _field_of(section, key)
        if field is None:
            draft.problems.append(_unknown_variable(variable))
            continue
        draft.variables[section, key] = variable
        draft.set(section, key, environ[variable])
        default = field.get_default(call_default_factory=True, validated_data={})
        if not isinstance(default, (bool, int, float, tuple, dict)):
            continue  # text
        try:
            draft.set(section, key, json.loads(environ[variable]))
        except (ValueError, RecursionError):
            remedy = _variable_example(variable, example_of(field))
            draft.problems.append(Problem(variable, "is not JSON", remedy))
    # A secret from a variable replaces the file's, also if one is given by a path and one in place.
    for section, key in list(draft.variables):
        twin = key.removesuffix("_file") if key.endswith("_file") else f"{key}_file"
        if _field_of(section, twin) and (section, twin) not in draft.variables:
            draft.tables.get(section, {}).pop(twin, None)


def variable_for(section: str, key: str) -> str:
    """Return the name of the variable that overrides a key."""
    return f"{PREFIX}{section}__{key}".upper()


def read_file(path: Path, max_bytes: int) -> tuple[str, int]:
    """Return a regular file's text and its permission bits. A FIFO does not hang the start.

    Raises:
        BadValue: the file cannot be used. If nothing is there, the path is not repeated: it may be
            a secret under a wrong key.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise BadValue("does not exist", "make that file, or correct the path") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no path"
        raise BadValue(
            f"cannot be opened ({why})", "correct the path, or who may read it"
        ) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise BadValue("is not a regular file", f"{path} has to be one")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise BadValue(f"cannot be read ({error.strerror})", f"see to {path}") from None
    finally:
        os.close(descriptor)
    if content.startswith(codecs.BOM_UTF8):
        # No editor shows it, and TOML's own error would be about a character that nobody sees.
        raise BadValue("begins with a byte order mark", f"save {path} as UTF-8 without one")
    if len(content) > max_bytes:
        raise BadValue(f"is longer than {max_bytes} bytes", f"see whether {path} is the right file")
    try:
        return content.decode(), stat.S_IMODE(mode)
    except UnicodeDecodeError:
        raise BadValue("is not UTF-8 text", f"see whether {path} is the right file") from None


def _warn_of_open_secrets(draft: Draft, found: dict[str, Any], path: Path) -> None:
    """Warn of each secret in a configuration that every user can read."""
    keys = []
    for section, key in SECRETS:
        table = found.get(section)
        if isinstance(table, dict) and table.get(key):
            keys.append((f"{section}.{key}", key))
    for crew in draft_crews(found.get(MANY, [])):
        if crew.given.get("environment"):
            keys.append((crew.key("environment"), "environment"))
    for name, key in keys:
        draft.warnings.append(
            Problem(
                name,
                "stands in a file that every user can read",
                f"keep it as a credential or in a file of its own ({key}_file), "
                f"or chmod 600 {path} if the daemon's user owns that",
            )
        )


def _variable_example(variable: str, example: object) -> str:
    text = example if isinstance(example, str) else json.dumps(example)
    return f"for example {variable}='{text}'"


def _field_of(section: str, key: str) -> FieldInfo | None:
    """Return the schema of a key, or None if there is no such key."""
    model = SECTIONS.get(section)
    return model.model_fields.get(key) if model else None


def _unknown_variable(variable: str) -> Problem:
    if variable.startswith(f"{PREFIX}CREWS__"):
        remedy = "unset it, and write the crew under [[crews]] in the file"
        return Problem(quoted_key(variable), "cannot be: variables set no crews", remedy)
    known = [variable_for(s, key) for s, model in SECTIONS.items() for key in model.model_fields]
    close = difflib.get_close_matches(variable, known, n=1)
    remedy = f"did you mean {close[0]}?" if close else "unset it, or see config.example.toml"
    return Problem(quoted_key(variable), "sets no key", remedy)
