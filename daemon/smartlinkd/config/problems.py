"""Problems of a configuration, in the words of the person who has to mend it.

A `Problem` has a key as the file or a variable names it, the fault and a remedy. pydantic's errors
become problems by their type and the field's own bounds, without the values: one may be a secret.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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
_FAULTS = {
    "missing": "is missing",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
}


@dataclass(frozen=True)
class Problem:
    """One problem: the `key` as the operator wrote it, the `fault`, and the `remedy`."""

    key: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        """Return one line. Unprintable characters are escaped: a file's name may have some."""
        return escape_unprintable(f"{self.key}: {self.fault}; {self.remedy}")


def first_of_each_key(problems: list[Problem]) -> list[Problem]:
    """Return the first problem of each key. A later one follows from it (no JSON, so no list)."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.key, problem)
    return list(first.values())


def example_of(field: FieldInfo) -> object:
    """Return a value that a field takes, for a remedy: its example, else its default."""
    if field.examples:
        return field.examples[0]
    return field.get_default(call_default_factory=True, validated_data={})


def format_toml(value: object) -> str:
    """Return a value as TOML. A string, a number or a boolean is written as in JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {format_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(format_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def toml_remedy(_section: str, key: str, example: object) -> str:
    """Return how an example is written in the file."""
    return f"for example {quoted_key(key)} = {format_toml(example)}"


def heading(section: str) -> str:
    """Return a section's name as it stands above its keys."""
    return f"[[{section}]]" if section == MANY else f"[{section}]"


def quoted_key(name: str) -> str:
    """Return a key that is safe to print: cut, and quoted if it is no bare key of TOML."""
    cut = name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…"
    return cut if _BARE_KEY.fullmatch(name) else json.dumps(cut)


def unknown_section(name: str, sections: Sections) -> Problem:
    """Return the problem of a section, or of a key outside of any, that does not exist."""
    close = difflib.get_close_matches(name, list(sections), n=1)
    if close:
        remedy = f"did you mean {heading(close[0])}?"
    else:
        remedy = _place_of(name, sections) or f"the sections are {', '.join(sections)}"
    return Problem(quoted_key(name), "there is no such section", remedy)


def from_pydantic(
    error: ValidationError,
    section: str,
    sections: Sections,
    name: Callable[[str, str], str],
    remedy: Callable[[str, str, object], str],
) -> Iterator[Problem]:
    """Yield the problems of one section.

    Args:
        name: returns the operator's name for a section's key.
        remedy: returns how an example is written for a section's key: as TOML or as a variable.
    """
    for detail in error.errors(include_url=False, include_input=False):
        key, *inside = detail["loc"]
        # pydantic's mark for "the key itself, not its value" means nothing to an operator.
        steps = (
            f"[{part}]" if isinstance(part, int) else f".{quoted_key(part)}"
            for part in inside
            if part != "[key]"
        )
        shown_name = name(section, str(key)) + "".join(steps)
        field = sections[section].model_fields.get(str(key))
        broken = detail.get("ctx", {}).get("error")
        if field is None:
            hint = _hint_at_key(section, str(key), sections)
            yield Problem(shown_name, "there is no such key", hint)
        elif isinstance(broken, BadValue) and broken.remedy:
            yield Problem(shown_name, broken.fault, broken.remedy)
        else:
            fault = broken.fault if isinstance(broken, BadValue) else _fault(detail, field)
            yield Problem(shown_name, fault, remedy(section, str(key), example_of(field)))


def _fault(detail: ErrorDetails, field: FieldInfo) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in _FAULTS:
        return _FAULTS[kind]
    if kind in ("greater_than_equal", "less_than_equal"):
        low = next(m.ge for m in field.metadata if isinstance(m, Ge))
        high = next(m.le for m in field.metadata if isinstance(m, Le))
        unit = f" {field.description}" if field.description else ""
        return f"must be from {low} to {high}{unit}"
    if kind == "literal_error":
        return "must be one of " + str(context["expected"]).replace("'", '"')
    if kind == "too_long":
        return f"must have at most {context['max_length']} entries"
    return detail["msg"]


def _hint_at_key(section: str, key: str, sections: Sections) -> str:
    """Return the remedy for a key that `section` does not have."""
    known = list(sections[section].model_fields)
    close = difflib.get_close_matches(key, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return _place_of(key, sections) or f"{heading(section)} takes {', '.join(known)}"


def _place_of(key: str, sections: Sections) -> str:
    """Return the remedy for a key that stands in the wrong section; empty if none has it."""
    homes = [heading(name) for name, model in sections.items() if key in model.model_fields]
    return f"it belongs under {' or '.join(homes)}" if homes else ""
