"""Request bodies: read, checked, and every fault told as one `Invalid` that names the field.

Quart's own `get_json` answers 500 to bytes that are not UTF-8 and to deep nesting, so the bytes go
to pydantic's JSON parser as they are. What it finds wrong is told in our words, and never with the
value that is wrong: it may be a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from quart import request

from daemon.errors import Invalid

B = TypeVar("B", bound=BaseModel)

MAX_FAULTS = 5  # told in one answer
MAX_FIELD = 100  # characters of a field's path; keys of an object are the client's own words

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


async def read(model: type[B]) -> B:
    """The body of the current request as a `model`.

    Raises `Invalid` for what is wrong with it, and werkzeug's `RequestEntityTooLarge` and
    `RequestTimeout` for a body that is too large or too slow.
    """
    if request.mimetype != "application/json":
        raise Invalid('Content-Type: must be "application/json"')
    data = await request.get_data()
    assert isinstance(data, bytes)  # noqa: S101 - for the type checker: text is asked for by name
    return parse(model, data)


def parse(model: type[B], data: bytes) -> B:
    """JSON as a `model`. Raises `Invalid`."""
    if not data.strip():
        raise Invalid("the body is empty; send a JSON object")
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        text = tell(error)
    raise Invalid(text)  # out here it has no context, which would hold the values


def tell(error: ValidationError) -> str:
    """All that is wrong, field by field, in our words and without the values."""
    found = error.errors(include_url=False, include_input=False)
    faults = [_fault(each["loc"], each["type"], each.get("ctx", {})) for each in found[:MAX_FAULTS]]
    if len(found) > MAX_FAULTS:
        faults.append(f"and {len(found) - MAX_FAULTS} more")
    return "; ".join(faults)


def _fault(where: tuple[int | str, ...], kind: str, context: Mapping[str, Any]) -> str:
    if kind == "json_invalid":
        return f"the body is not valid JSON: {context['error']}"
    fault = _FAULTS.get(kind, "is not valid").format_map(context)
    field = ".".join(map(str, where))[:MAX_FIELD]
    return f"{field}: {fault}" if field else f"the body {fault}"
