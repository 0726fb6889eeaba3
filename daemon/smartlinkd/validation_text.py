"""What is wrong with what somebody sent, in our words.

pydantic's own texts speak of Python and quote the value, which may be a password. So each kind of
fault has a text here, with the field before it and never the value. The facade tells bodies this
way, and the crews' tools their arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

MAX_FAULTS = 5  # told in one answer
MAX_FIELD = 100  # characters of a field's path; keys of an object are the sender's own words

# By pydantic's error types. A braced name is taken from the error's context: limits, all of them.
_FAULTS = {
    "missing": "is missing",
    "string_type": "must be a string",
    "string_too_short": "is too short (at least {min_length} characters)",
    "string_too_long": "is too long (at most {max_length} characters)",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "list_type": "must be an array",
    "too_short": "has too few items (at least {min_length})",
    "too_long": "has too many items (at most {max_length})",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "extra_forbidden": "is not a field here",
    "value_error": "{error}",  # raised by a validator of ours, in words of ours
}


def described(error: ValidationError, *, whole: str) -> str:
    """The first faults in one line. `whole` is what to call the thing that has the fields."""
    found = error.errors(include_url=False, include_input=False)
    faults = [
        _fault(each["loc"], each["type"], each.get("ctx", {}), whole) for each in found[:MAX_FAULTS]
    ]
    if len(found) > MAX_FAULTS:
        faults.append(f"and {len(found) - MAX_FAULTS} more")
    return "; ".join(faults)


def _fault(where: tuple[int | str, ...], kind: str, context: Mapping[str, Any], whole: str) -> str:
    if kind == "json_invalid":
        return f"{whole} is not valid JSON: {context['error']}"
    fault = _FAULTS.get(kind, "is not valid").format_map(context)
    field = ".".join(map(str, where))[:MAX_FIELD]
    return f"{field}: {fault}" if field else f"{whole} {fault}"
