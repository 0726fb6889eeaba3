"""Values as the marketplace writes them: JSON in JSON, numbers, strings of numbers, percentages.

Money and rates are `Decimal`. A fraction in JSON is read by the shortest decimal spelling of its
float, which is what the sender wrote.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, TypeVar

from smartlinkd.untrusted import load_json

N = TypeVar("N", int, Decimal)

_MAX_LENGTH = 40  # characters; no amount has so many
# Few enough digits to be rounded: decimal raises for more than 28. "1e999999999" would take a
# gigabyte as a whole number.
_MAX_EXPONENT = 20
_MAX_LAYERS = 4  # JSON text in JSON text, each in a list: nobody has sent more
_MAX_TEXT = 2000  # characters of a name or an address; the marketplace allows fewer


def json_object(text: str) -> dict[str, Any] | None:
    """Return `text` as a JSON object; None if it is none."""
    value = _load(text)
    return value if isinstance(value, dict) else None


def to_dict(value: object) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def unpacked(value: object) -> dict[str, Any]:
    """Return `value` as a JSON object, also from JSON text or from a list of one item.

    Anything else, or more than `_MAX_LAYERS` such layers, gives an empty one.
    """
    for _ in range(_MAX_LAYERS):
        if isinstance(value, str):
            value = _load(value)
        elif isinstance(value, list) and len(value) == 1:
            value = value[0]
    return to_dict(value)


def _load(text: str) -> object:
    try:
        return load_json(text)
    except (ValueError, RecursionError):  # RecursionError: brackets nested by the thousand
        return None


def to_text(value: object) -> str | None:
    """Return a string without blanks at its ends, cut to 2000 characters; None if it is empty."""
    text = value.strip()[:_MAX_TEXT] if isinstance(value, str) else ""
    return text or None


def to_decimal(value: object) -> Decimal | None:
    """Return a number, or a string of one, as a finite Decimal; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        text = value.strip() if isinstance(value, str) else repr(value)
        if len(text) > _MAX_LENGTH:
            return None
        number = Decimal(text)
    except (InvalidOperation, ValueError):  # ValueError: an int of too many digits
        return None
    if not number.is_finite() or abs(number.adjusted()) > _MAX_EXPONENT:
        return None
    return number


def to_int(value: object) -> int | None:
    """Return a whole number, or a string of one, as an int; None for anything else."""
    number = to_decimal(value)
    return int(number) if number is not None and number == number.to_integral_value() else None


def not_negative(value: N | None) -> N | None:
    """Return `value`, or None if it is negative: the marketplace writes -1 for "unknown"."""
    return value if value is not None and value >= 0 else None


def to_percent(value: object) -> Decimal | None:
    """Return a percentage for people ("2,5%", "18 %") as a number (2.5, 18), or None."""
    if not isinstance(value, str) or not value.strip().endswith("%"):
        return None
    return to_decimal(value.strip()[:-1].replace(",", "."))


def half_up(number: Decimal) -> int:
    """Round to a whole number, halves away from zero, as people round money.

    Takes every number of `to_decimal`, and a thousand times that.
    """
    return int(number.quantize(Decimal(1), ROUND_HALF_UP))


def as_text(number: Decimal, *, places: int) -> str:
    """Return `number` rounded half-up to at most `places` decimals, without trailing zeros."""
    rounded = number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    text = f"{rounded:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
