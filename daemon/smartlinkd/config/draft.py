"""A configuration while it is put together, before it is known to be right.

Each step of reading works on one `Draft`, and adds its problems instead of raising the first one.
The draft remembers where a value came from, because a problem is reported in the operator's words:
`server.bind` from the file, `SMARTLINKD_SERVER__BIND` from the environment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic.fields import FieldInfo

from smartlinkd.config.crews import CrewDraft
from smartlinkd.config.problems import Problem, quoted_key, written
from smartlinkd.config.settings import SECTIONS


@dataclass
class Draft:
    """Values as given, the names they were given under, and what was found so far."""

    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    crews: list[CrewDraft] = field(default_factory=list)
    variables: dict[tuple[str, str], str] = field(default_factory=dict)
    files: dict[tuple[str, str], str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def value(self, section: str, key: str) -> Any:
        """What was given for a key, or None."""
        return self.tables.get(section, {}).get(key)

    def put(self, section: str, key: str, value: object) -> None:
        """Give a key its value, in place of an earlier one."""
        self.tables.setdefault(section, {})[key] = value

    def name(self, section: str, key: str) -> str:
        """What the operator calls this key: what set it, or its place in the file."""
        place = (section, key)
        return self.files.get(place) or self.variables.get(place) or f"{section}.{quoted_key(key)}"

    def remedy(self, section: str, key: str, example: object) -> str:
        """How `example` is written where this key's value came from."""
        variable = self.variables.get((section, key))
        if variable is None:
            return f"for example {quoted_key(key)} = {written(example)}"
        return f"for example {variable}='{as_variable(example)}'"


def as_variable(example: object) -> str:
    """A value as it is written in an environment variable: text as it is, the rest as JSON."""
    return example if isinstance(example, str) else json.dumps(example)


def secret_keys() -> list[tuple[str, str]]:
    """Section and key of every secret: those that may also stand in a file, named by `…_file`."""
    return [
        (section, key)
        for section, model in SECTIONS.items()
        for key in model.model_fields
        if f"{key}_file" in model.model_fields
    ]


def field_of(section: str, key: str) -> FieldInfo | None:
    """The schema of a key, or None when there is no such key."""
    model = SECTIONS.get(section)
    return model.model_fields.get(key) if model else None
