"""What a request says outside of its body: in its path, its query and its headers.

The problem is the one of `openapi.py`: what is read and what is documented must be one declaration.
So the parameters of an operation are a model, and each field says where it stands:

    class Asked(Parameters):
        kickoff_id: Annotated[str, In("path")]
        wait: Annotated[float, In("query"), Field(ge=0)] = 0
        key: Annotated[str | None, In("header"), Field(alias="Idempotency-Key")] = None

Whatever stands elsewhere is not looked at: a client may send what we do not know. But a model with
`extra="forbid"` refuses an unknown parameter of the query: an operation that deletes what its
filters name must not take a misspelt filter for none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from quart import request

from smartlinkd.errors import Invalid
from smartlinkd.untrusted import escape_unprintable
from smartlinkd.validation import MAX_FIELD, describe_errors

Json = dict[str, Any]
P = TypeVar("P", bound="Parameters")

_NULL: Final = {"type": "null"}


@dataclass(frozen=True)
class In:
    """Where a parameter stands."""

    where: Literal["path", "query", "header"]


class Parameters(BaseModel):
    """What an operation takes beside its body. A field without a default has to be sent."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)


def read(model: type[P]) -> P:
    """The parameters of the current request. Raises `Invalid`, naming what is wrong.

    Of a parameter that is sent twice the first counts.
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


def describe(model: type[Parameters]) -> list[Json]:
    """The model as parameter objects of OpenAPI."""
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


def _place(field: FieldInfo) -> Literal["path", "query", "header"]:
    return next(each.where for each in field.metadata if isinstance(each, In))


def _sent(where: Literal["path", "query", "header"], key: str) -> str | None:
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
    """Nothing in a path, a query or a header is null: what is optional there is left out."""
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    if plain.get("default", ...) is None:
        del plain["default"]
    for choice in schema.get("anyOf", ()):
        if choice != _NULL:
            plain |= choice
    return plain
