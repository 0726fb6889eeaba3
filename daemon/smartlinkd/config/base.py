"""The base of every table of the configuration, types that several tables use, and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, SecretStr

from smartlinkd.config import values
from smartlinkd.net.addresses import Network, parse_network

MOST_ENTRIES = 64  # of a list; some are searched for every request
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
DAY = 86_400  # seconds

T = TypeVar("T")
ListOf = Annotated[tuple[T, ...], Field(strict=False, max_length=MOST_ENTRIES)]
NetworkList = Annotated[
    ListOf[Annotated[Network, PlainValidator(parse_network)]],
    Field(examples=[["127.0.0.0/8", "192.0.2.7"]]),
]
Words = ListOf[Annotated[str, PlainValidator(values.parse_argument)]]
Secret = Annotated[SecretStr, PlainValidator(values.parse_plain_secret)]
OptionalPath = Annotated[Path | None, PlainValidator(values.parse_optional_path)]
SecretFile = Annotated[OptionalPath, Field(examples=["/etc/smartlinkd/secret"])]


class Section(BaseModel):
    """One table of the file. Values are not coerced: the text "32" is no number."""

    model_config = ConfigDict(
        # Most files have few of the tables, so a table's validator is built when it is needed.
        defer_build=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        strict=True,
    )
