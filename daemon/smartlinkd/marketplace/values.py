"""Values as the marketplace writes them: numbers, strings of them, and strings for people.

Money and rates never pass through a binary float of ours: what JSON gave as a float is taken by its
shortest decimal spelling, which is what the sender wrote.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from smartlinkd.untrusted import REPLACEMENT, load_json

N = TypeVar("N", int, Decimal)

# Larger than any amount there is, in either direction of the point, and small enough to be rounded:
# what has more than 28 digits then, decimal raises for. "1e999999999" is eleven characters that
# would cost a gigabyte as a whole number.
_MAX_LENGTH = 40
_MAX_EXPONENT = 20
_MAX_LAYERS = 4  # JSON text in JSON text, each in a list: nobody has sent more
_MAX_TEXT = 2000  # characters of a name or an address; the marketplace allows fewer


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is; None for anything else."""
    try:
        value = load_json(text)
    except (ValueError, RecursionError):  # RecursionError: brackets nested by the thousand
        return None
    return value if isinstance(value, dict) else None


def to_dict(value: object) -> dict[str, Any]:
    """`value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def unpacked(value: object) -> dict[str, Any]:
    """Return the JSON object that `value` is, also as JSON text or as the only item of a list.

    Anything else, and an object in more than `_MAX_LAYERS` such layers, is an empty one.
    """
    for _ in range(_MAX_LAYERS):
        if isinstance(value, str):
            try:
                value = load_json(value)
            except (ValueError, RecursionError):
                return {}
        elif isinstance(value, list) and len(value) == 1:
            value = value[0]
    return to_dict(value)


def to_text(value: object) -> str | None:
    """`value` if it is a string with something in it, trimmed, and cut where it is absurd."""
    text = value.strip()[:_MAX_TEXT] if isinstance(value, str) else ""
    return text or None


def parts_of(url: str) -> SplitResult:
    """The parts of `url`, all empty when it is none: a page's script may name anything one."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


def is_web_address(text: str) -> bool:
    """Whether a client could open it: a URL of http or https with no part of it lost."""
    parts = parts_of(text)
    is_whole = " " not in text and REPLACEMENT not in text
    return is_whole and parts.scheme in ("http", "https") and bool(parts.hostname)


def to_decimal(value: object) -> Decimal | None:
    """`value` (a number or a string of one) as a finite Decimal; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        text = value.strip() if isinstance(value, str) else repr(value)
        if len(text) > _MAX_LENGTH:
            return None
        number = Decimal(text)
    except (InvalidOperation, ValueError):  # ValueError: an int too long to be spelled out
        return None
    if not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
        return None
    return number


def to_int(value: object) -> int | None:
    """`value` (a whole number or a string of one) as an int; None for anything else."""
    number = to_decimal(value)
    return int(number) if number is not None and number == number.to_integral_value() else None


def not_negative(value: N | None) -> N | None:
    """`value`, or None for the -1 that the marketplace writes for "not known"."""
    return value if value is not None and value >= 0 else None


def to_percent(value: object) -> Decimal | None:
    """A percentage written for people ("2,5%", "18 %") as a number of percent (2.5, 18)."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return None
    return to_decimal(value.strip()[:-1].replace(",", "."))


def half_up(number: Decimal) -> int:
    """The nearest whole number, halves away from zero, as people round money.

    Raises for nothing that `to_decimal` gives, or a thousand times that; nor does `as_text`.
    """
    return int(number.quantize(Decimal(1), ROUND_HALF_UP))


def as_text(number: Decimal, *, places: int) -> str:
    """`number` with at most `places` decimals, rounded half-up, a dot, and no trailing zero."""
    rounded = number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
