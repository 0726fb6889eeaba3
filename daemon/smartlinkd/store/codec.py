"""Values as they stand in the columns: JSON and text with their size limits, and times. Pure.

What workers and clients send has narrower limits (crews/protocol.py, `MAX_BODY` of the HTTP
server), but for `meta`. JSON is parsed again before it is stored, so that no value that the reader
would refuse (NaN, a lone surrogate, too deep a nesting) makes an execution unreadable.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from smartlinkd.errors import Invalid

MAX_VALUE: Final = 8 * 1024 * 1024
"""Bytes of a value, such as a result, or the data of an event as JSON."""
MAX_META: Final = 64 * 1024
"""Bytes of a client's `meta`, which stands in every webhook call but those of a stream."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Damaged(ValueError):  # noqa: N818 - said of the file
    """A column does not hold what was written into it."""


def encode(name: str, value: JsonValue, *, limit: int = MAX_VALUE) -> str | None:
    """Return a JSON value as text; None for null.

    Args:
        name: the field's name, for the error.
        limit: the size in bytes.

    Raises:
        Invalid: the text is over the limit, or this is no JSON value, or one that no parser takes.
    """
    if value is None:
        return None
    try:
        content = to_json(value, inf_nan_mode="constants")
        _check_size(name, len(content), limit)
        from_json(content, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        raise Invalid(
            f"{name}: cannot be kept as JSON; leave out NaN, Infinity, half characters (lone "
            "surrogates), and more than 200 levels of lists and objects"
        ) from None
    return content.decode()


def decode(content: str | None) -> JsonValue:
    """Return the value that `encode` was given. Raises `Damaged` if it is no JSON."""
    if content is None:
        return None
    try:
        value: JsonValue = from_json(content, cache_strings="keys")
    except ValueError:
        raise Damaged("text that should be JSON") from None
    return value


def text(name: str, value: str) -> str:
    """Return `value`. Raises `Invalid` if it is too large, or has a lone surrogate."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{name}: holds half a character (a lone surrogate); replace it") from None
    _check_size(name, size, MAX_VALUE)
    return value


def _check_size(name: str, size: int, limit: int) -> None:
    if size > limit:
        raise Invalid(f"{name}: {size} bytes, more than the {limit} that are kept; send less")


def digest(value: JsonValue) -> bytes:
    """Return a digest that is equal for equal JSON values, also for `1.0` and `1`.

    Raises what `encode` raises.
    """
    content = encode("body", value) or "null"
    plain = json.loads(content, parse_float=_number)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()


def _number(digits: str) -> float | int:
    value = float(digits)
    return int(value) if value.is_integer() else value


def micros(moment: datetime) -> int:
    """Return the microseconds since 1970 of an aware time, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """Return the time, in UTC, that `micros` was given."""
    return _EPOCH + timedelta(microseconds=value)


def optional_moment(value: int | None) -> datetime | None:
    """Return the time that `micros` was given; None for a null."""
    return None if value is None else moment(value)
