"""What is wrong with a configuration, in the words of the person who has to mend it.

The problem: a schema's own errors speak of types and locations, come one section at a time and
quote the value that was wrong. An operator wants every fault at once, each under the name that
stands in the file (or of the environment variable that overrode it), and what to write instead.

The choice: every finding is a `Problem` of key, fault and remedy; this file turns pydantic's
errors into such, from the error's type and the field's own bounds, and never from the value.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from smartlinkd.untrusted import escape_unprintable
from smartlinkd.validation import BadValue

LONGEST_NAME = 60  # characters of an unknown key that are repeated
MANY = "crews"  # the one section that there may be many of

Sections = Mapping[str, type[BaseModel]]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Problem:
    """One finding: `key` as the operator wrote it, the `fault`, and the `remedy`."""

    key: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        """One line, whatever the files are called that it is about."""
        return escape_unprintable(f"{self.key}: {self.fault}; {self.remedy}")


def one_a_key(problems: list[Problem]) -> list[Problem]:
    """The first of each key: what comes after it (no JSON, so no list either) only repeats it."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.key, problem)
    return list(first.values())


def example_of(field: FieldInfo) -> object:
    """A value that a field takes, for a remedy: the one it names, else its default."""
    if field.examples:
        return field.examples[0]
    return field.get_default(call_default_factory=True, validated_data={})


def written(value: object) -> str:
    """A value as it is written in TOML, where a JSON text of a string, number or switch is one."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {written(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def unknown_key(section: str, key: str, sections: Sections) -> str:
    """What to do about a key that `section` does not have."""
    known = list(sections[section].model_fields)
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return _elsewhere(key, sections) or f"{heading(section)} takes {', '.join(known)}"


def unknown_section(name: str, sections: Sections) -> str:
    """What to do about a section, or a key outside of any, that does not exist."""
    close = difflib.get_close_matches(name, list(sections), n=1)
    if close:
        return f"did you mean {heading(close[0])}?"
    return _elsewhere(name, sections) or f"the sections are {', '.join(sections)}"


def heading(section: str) -> str:
    """A section's name as it stands above its keys."""
    return f"[[{section}]]" if section == MANY else f"[{section}]"


def quoted_key(name: str) -> str:
    """A name from the file, safe to print: quoted when it is no bare key, and not endless."""
    cut = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…"
    return cut if _BARE_KEY.fullmatch(name) else json.dumps(cut)


def from_pydantic(
    error: ValidationError,
    section: str,
    sections: Sections,
    name: Callable[[str, str], str],
    remedy: Callable[[str, str, object], str],
) -> Iterator[Problem]:
    """The problems of one section.

    `name(section, key)` is what the operator calls the key, `remedy(section, key, example)` how
    that example would be written where the value came from.
    """
    for detail in error.errors(include_url=False, include_input=False):
        key, *inside = detail["loc"]
        # pydantic's mark for "the key itself, not what it holds" means nothing to an operator.
        steps = [_step(part) for part in inside if part != "[key]"]
        shown_name = name(section, str(key)) + "".join(steps)
        field = sections[section].model_fields.get(str(key))
        if field is None:
            yield Problem(
                shown_name, "there is no such key", unknown_key(section, str(key), sections)
            )
            continue
        broken = detail.get("ctx", {}).get("error")
        fault = broken.fault if isinstance(broken, BadValue) else _fault(detail, field)
        own_remedy = broken.remedy if isinstance(broken, BadValue) else ""
        yield Problem(shown_name, fault, own_remedy or remedy(section, str(key), example_of(field)))


def _elsewhere(key: str, sections: Sections) -> str:
    homes = [heading(name) for name, model in sections.items() if key in model.model_fields]
    return f"it belongs under {' or '.join(homes)}" if homes else ""


def _step(part: int | str) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{quoted_key(part)}"


_TYPES = {
    "missing": "is missing",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
}


def _fault(detail: ErrorDetails, field: FieldInfo) -> str:
    kind, ctx = detail["type"], detail.get("ctx", {})
    if kind in _TYPES:
        return _TYPES[kind]
    if kind in ("greater_than_equal", "less_than_equal"):
        return _range(field)
    if kind == "literal_error":
        return f"must be one of {_listed(ctx)}"
    if kind == "too_long":
        return f"must have at most {ctx['max_length']} entries"
    return detail["msg"]


def _range(field: FieldInfo) -> str:
    low = next(m.ge for m in field.metadata if isinstance(m, Ge))
    high = next(m.le for m in field.metadata if isinstance(m, Le))
    unit = f" {field.description}" if field.description else ""
    return f"must be from {low} to {high}{unit}"


def _listed(ctx: dict[str, Any]) -> str:
    return str(ctx["expected"]).replace("'", '"')
