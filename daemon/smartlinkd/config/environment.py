"""`SMARTLINKD_SECTION__KEY` variables over the values of the file.

Text is taken as it is; numbers, switches, lists and tables are JSON. A variable with the prefix
and a double underscore that names no key is a problem, since it would silently do nothing; other
variables with the prefix belong to somebody else. Crews cannot be set by variables: they are many
tables of one name.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping

from pydantic.fields import FieldInfo

from smartlinkd.config.draft import Draft, as_variable, field_of
from smartlinkd.config.problems import Problem, example_of, quoted_key
from smartlinkd.config.settings import SECTIONS

PREFIX = "SMARTLINKD_"


def override(draft: Draft, environ: Mapping[str, str]) -> None:
    """Put the variables' values into the draft, and add a problem for each that cannot be."""
    for variable in sorted(environ):
        section, separator, key = variable.removeprefix(PREFIX).lower().partition("__")
        if not (variable.startswith(PREFIX) and separator):
            continue
        field = field_of(section, key)
        if field is None:
            draft.problems.append(_unknown(variable))
            continue
        draft.variables[section, key] = variable
        draft.put(section, key, environ[variable])
        if _is_text(field):
            continue
        try:
            draft.put(section, key, json.loads(environ[variable]))
        except (ValueError, RecursionError):
            example = as_variable(example_of(field))
            draft.problems.append(
                Problem(variable, "is not JSON", f"for example {variable}='{example}'")
            )
    _let_variables_win(draft)


def variable_for(section: str, key: str) -> str:
    """The name of the variable that overrides a key."""
    return f"{PREFIX}{section}__{key}".upper()


def _let_variables_win(draft: Draft) -> None:
    """A secret from the environment takes the place of the file's, whichever form each has."""
    for section, key in list(draft.variables):
        twin = key.removesuffix("_file") if key.endswith("_file") else f"{key}_file"
        if field_of(section, twin) and (section, twin) not in draft.variables:
            draft.tables.get(section, {}).pop(twin, None)


def _is_text(field: FieldInfo) -> bool:
    default = field.get_default(call_default_factory=True, validated_data={})
    return not isinstance(default, (bool, int, float, tuple, dict))


def _unknown(variable: str) -> Problem:
    if variable.startswith(f"{PREFIX}CREWS__"):
        remedy = "unset it, and write the crew under [[crews]] in the file"
        return Problem(quoted_key(variable), "cannot be: variables set no crews", remedy)
    known = [variable_for(s, key) for s, model in SECTIONS.items() for key in model.model_fields]
    close = difflib.get_close_matches(variable, known, n=1)
    remedy = f"did you mean {close[0]}?" if close else "unset it, or see config.example.toml"
    return Problem(quoted_key(variable), "sets no key", remedy)
