"""Values as they stand in the columns: JSON and text with their limits, and moments.

The limits here are the last line: whoever asks has limits of its own, and these only keep a
mistake there from filling the disk. What goes in is proven to come out again: JSON is read back
before it is stored, so that no value which the reader would refuse (NaN, half a character, a depth
that no parser takes) ever makes an execution unreadable.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from smartlinkd.errors import Invalid
from smartlinkd.store.errors import TooLarge

MAX_JSON: Final = 8 * 1024 * 1024
"""Bytes of one JSON value: the inputs of an execution, the data of an event."""
MAX_META: Final = 64 * 1024
"""Bytes of what a client gives to have it back: it stands in every webhook call of the execution,
of which there may be 100 000, and 256 MiB owed at a time."""
MAX_TEXT: Final = 8 * 1024 * 1024
"""Bytes of a result."""
MAX_ERROR: Final = 64 * 1024
"""Bytes of an error's text: a page of 100 executions holds 100 of them."""
MAX_NAME: Final = 4096
"""Bytes of a name: a task's id, the type of an event, an idempotency key."""
MAX_URL: Final = 8 * 1024
"""Bytes of an address."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Damaged(ValueError):  # noqa: N818 - said of the file
    """A column does not hold what was written into it."""


def encode(name: str, value: JsonValue, *, limit: int = MAX_JSON) -> str | None:
    """A JSON value as text; None for null, which needs none.

    Raises `TooLarge`, or `Invalid` for what is no JSON value. `name` is the field's, for the error.
    """
    if value is None:
        return None
    try:
        content = to_json(value, inf_nan_mode="constants")
        check_size(name, len(content), limit)
        from_json(content, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        raise Invalid(
            f"{name}: cannot be kept as JSON; leave out NaN, Infinity, half characters (lone "
            "surrogates), and more than 200 levels of lists and objects"
        ) from None
    return content.decode()


def decode(content: str | None) -> JsonValue:
    """The value that `encode` was given. Raises `Damaged`."""
    if content is None:
        return None
    try:
        value: JsonValue = from_json(content, cache_strings="keys")
    except ValueError:
        raise Damaged("text that should be JSON") from None
    return value


def text(name: str, value: str, limit: int) -> str:
    """The text itself, when it can be stored. Raises `TooLarge` or `Invalid`."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{name}: holds half a character (a lone surrogate); replace it") from None
    check_size(name, size, limit)
    return value


def check_size(name: str, size: int, limit: int) -> None:
    """Raises `TooLarge` for more than `limit` bytes."""
    if size > limit:
        raise TooLarge(f"{name}: {size} bytes, more than the {limit} that are kept; send less")


def digest(value: JsonValue) -> bytes:
    """Equal for equal JSON values: order of members, spaces, and `1.0` for `1` do not matter.

    Raises as `encode` does.
    """
    content = encode("body", value) or "null"
    plain = json.loads(content, parse_float=_number)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()


def _number(digits: str) -> float | int:
    value = float(digits)
    return int(value) if value.is_integer() else value


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly. `moment` is aware."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """The aware time, in UTC, that `micros` was given."""
    return _EPOCH + timedelta(microseconds=value)


def optional_moment(value: int | None) -> datetime | None:
    """The same for a column that may be null."""
    return None if value is None else moment(value)
