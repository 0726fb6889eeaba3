"""Errors about values that somebody gave us, in our words.

pydantic's own texts speak of Python and quote the value, which may be a password. So each kind of
error has a text here, with the field before it and never the value. HTTP bodies, the messages of
crews' workers and the arguments of tools use them. The configuration has texts of its own
(`config/problems.py`), and shares `BadValue`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

MAX_ERRORS: Final = 5
"""Errors in one answer."""
MAX_FIELD: Final = 100
"""Characters of a field's path: keys of an object are the sender's own words."""

# By pydantic's error types. A name in braces is a limit in the error's context.
_TEXTS: Final = {
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
    "string_pattern_mismatch": "must match {pattern}",
    "union_tag_not_found": "has no {discriminator}",
    "union_tag_invalid": "has an unknown {discriminator}, known are {expected_tags}",
    "value_error": "{error}",  # raised by a validator of ours, in words of ours
}


class BadValue(ValueError):  # noqa: N818 - `Problem` of the configuration is made of it
    """A value breaks its rule. The text never repeats the value, which may be a secret.

    Without a `remedy` the setting's example is the remedy.
    """

    def __init__(self, fault: str, remedy: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.remedy = remedy


def require_text(value: object) -> str:
    """Return the value. Raises `BadValue` if it is no string."""
    if not isinstance(value, str):
        raise BadValue("must be text in quotes")
    return value


def describe_errors(error: ValidationError, *, whole: str) -> str:
    """Return the first errors in one line. `whole` names the thing that has the fields."""
    found = error.errors(include_url=False, include_input=False)
    texts = [
        _describe(each["loc"], each["type"], each.get("ctx", {}), whole)
        for each in found[:MAX_ERRORS]
    ]
    if len(found) > MAX_ERRORS:
        texts.append(f"and {len(found) - MAX_ERRORS} more")
    return "; ".join(texts)


def _describe(
    where: tuple[int | str, ...], kind: str, context: Mapping[str, Any], whole: str
) -> str:
    if kind == "json_invalid":
        return f"{whole} is not valid JSON: {context['error']}"
    fault = _TEXTS.get(kind, "is not valid").format_map(context)
    field = ".".join(map(str, where))[:MAX_FIELD]
    return f"{field}: {fault}" if field else f"{whole} {fault}"
