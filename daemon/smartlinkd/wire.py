"""The base of bodies and parameters: camelCase names, times in ISO 8601 UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, PlainSerializer
from pydantic.alias_generators import to_camel


class Body(BaseModel):
    """A body. Unknown fields are ignored, types are not coerced, and errors show no values."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        strict=True,
        hide_input_in_errors=True,
        # pydantic would cache up to 16,384 short strings, the owner's password among them.
        cache_strings="keys",
        # Validators are built at the first use: all of them take a twentieth of the start.
        defer_build=True,
    )


def example(body: dict[str, JsonValue]) -> ConfigDict:
    """Return the configuration of a body that has an example in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [body]})


def timestamp(moment: datetime) -> str:
    """Return ISO 8601 in UTC with milliseconds and `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Timestamp = Annotated[
    datetime,
    PlainSerializer(timestamp, return_type=str),
    Field(description="ISO 8601, UTC, milliseconds"),
]


@dataclass(frozen=True)
class AsSent:
    """Marks a field of a body whose strings keep half characters (lone surrogates).

    In every other string of a body a half character is read as U+FFFD (`api/requests.py`).
    """


Place = Literal["path", "query", "header"]


@dataclass(frozen=True)
class In:
    """Where a parameter stands."""

    where: Place


class Parameters(BaseModel):
    """The parameters of an operation. A field without a default has to be sent.

    Unknown parameters are ignored, unless the model has `extra="forbid"`: an operation that deletes
    what its filters name must not take a misspelt filter for none.
    """

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, defer_build=True)
