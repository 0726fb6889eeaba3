"""Read requests: parameters in the path, the query and headers, and the body.

The parameters of an operation are a model, from which they are both read and documented:

    class Asked(Parameters):
        kickoff_id: Annotated[str, In("path")]
        wait: Annotated[float, In("query"), Field(ge=0)] = 0
"""

from __future__ import annotations

import codecs
import json
from typing import Any, Final, TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import from_json
from quart import request

from smartlinkd.errors import Invalid
from smartlinkd.untrusted import escape_unprintable, replace_lone_surrogates
from smartlinkd.validation import MAX_FIELD, describe_errors
from smartlinkd.wire import AsSent, In, Parameters, Place

Json = dict[str, Any]
P = TypeVar("P", bound="Parameters")
B = TypeVar("B", bound=BaseModel)

_NULL: Final = {"type": "null"}
_UTF_16: Final = "is UTF-16; send it as UTF-8"
_UNREADABLE: Final = {
    codecs.BOM_UTF16_LE: _UTF_16,
    codecs.BOM_UTF16_BE: _UTF_16,
    b"\x1f\x8b": "is compressed; send it as it is, without Content-Encoding",  # RFC 1952
}
"""By the first two bytes, bodies that some editors, shells and clients send."""


def read_parameters(model: type[P]) -> P:
    """Read the parameters of the current request. Of one that is sent twice the first counts.

    Raises:
        Invalid: A parameter is missing, wrong, or forbidden; the text names it.
    """
    if model.model_config.get("extra") == "forbid":
        _refuse_unknown(model)
    given = {}
    for name, field in model.model_fields.items():
        value = _sent(_place(field), field.alias or name)
        if value is not None:
            given[field.alias or name] = value
    try:
        return model.model_validate_strings(given)
    except ValidationError as error:
        text = describe_errors(error, whole="the query")
    raise Invalid(text)  # out here it has no context, which would hold the values


def describe_parameters(model: type[Parameters]) -> list[Json]:
    """Return the model as parameter objects of OpenAPI."""
    schema = model.model_json_schema()
    required = schema.get("required", ())
    described = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        own = _without_null(schema["properties"][key])
        entry: Json = {"name": key, "in": _place(field), "required": key in required}
        for word in ("description", "examples"):
            if word in own:
                found = own.pop(word)
                entry |= {"example": found[0]} if word == "examples" else {word: found}
        described.append(entry | {"schema": own})
    return described


async def read_body(model: type[B], *, any_type: bool = False, is_optional: bool = False) -> B:
    """Read the body of the current request as a `model`.

    Args:
        any_type: Take it whatever its `Content-Type` is, with names in snake_case as well, as
            clients of CrewAI send it.
        is_optional: Take no body for an empty object.

    Raises:
        Invalid: The body is wrong; the text names the field, and never the value, which may be a
            password.
        RequestEntityTooLarge, RequestTimeout: Werkzeug's, for one that is too large or too slow.
    """
    if is_optional and not await request.get_data():
        return parse_body(model, b"{}")
    if not any_type and request.mimetype != "application/json":
        raise Invalid('Content-Type: must be "application/json"')
    data = await request.get_data()
    assert isinstance(data, bytes)  # noqa: S101 - for the type checker: text is asked for by name
    return parse_body(model, data, by_name=any_type)


async def read_json() -> JsonValue:
    """Return all of the current request's body, which `read_body` has read as a model."""
    data = await request.get_data()
    assert isinstance(data, bytes)  # noqa: S101 - for the type checker, as above
    text = replace_lone_surrogates(data.removeprefix(codecs.BOM_UTF8))
    value: JsonValue = from_json(text, cache_strings="keys")  # there may be secrets in it
    return value


def parse_body(model: type[B], data: bytes, *, by_name: bool = False) -> B:
    """Parse JSON as a `model`; with `by_name` fields may have our own names, too.

    A byte order mark is ignored (RFC 8259, section 8.1). Half a character (a lone surrogate), which
    pydantic refuses, is read as U+FFFD, and put back in fields that are marked `AsSent`.

    Raises:
        Invalid: As `read_body`.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise Invalid("the body is empty; send a JSON object")
    if fault := _UNREADABLE.get(data[:2]):
        raise Invalid(f"the body {fault}")
    whole = replace_lone_surrogates(data)
    try:
        body = model.model_validate_json(whole, by_alias=True, by_name=by_name)
    except ValidationError as error:
        text = describe_errors(error, whole="the body")
    else:
        if whole is not data:
            _put_halves_back(body, data)
        return body
    raise Invalid(text)  # out here it has no context, which would hold the values


def _put_halves_back(body: BaseModel, data: bytes) -> None:
    """Give each `AsSent` field of `body` its value as `data` has it. `data` is valid JSON."""
    fields = type(body).model_fields.items()
    marked = {
        name: field.alias or name
        for name, field in fields
        if any(isinstance(each, AsSent) for each in field.metadata)
    }
    if marked:
        sent = json.loads(data)
        for name, key in marked.items():
            if key in sent:
                setattr(body, name, sent[key])


def _place(field: FieldInfo) -> Place:
    return next(each.where for each in field.metadata if isinstance(each, In))


def _sent(where: Place, key: str) -> str | None:
    match where:
        case "path":
            value: str = (request.view_args or {})[key]
            return value
        case "query":
            return request.args.get(key)
        case "header":
            return request.headers.get(key)


def _refuse_unknown(model: type[Parameters]) -> None:
    """Raise `Invalid` if the query has a parameter that is not in the model."""
    fields = model.model_fields.items()
    known = [field.alias or name for name, field in fields if _place(field) == "query"]
    for key in request.args:
        if key not in known:
            shown = escape_unprintable(key[:MAX_FIELD])
            raise Invalid(f"{shown}: is not known here; take it out, or use {', '.join(known)}")


def _without_null(schema: Json) -> Json:
    """Drop null from a schema: an optional parameter is left out, and never null."""
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    if plain.get("default", ...) is None:
        del plain["default"]
    for choice in schema.get("anyOf", ()):
        if choice != _NULL:
            plain |= choice
    return plain
