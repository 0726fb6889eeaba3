r"""Text and JSON of others: made safe to show, and free of lone surrogates.

A terminal or a log must not obey control characters of a foreign text. And JSON can carry a lone
surrogate (`\ud83d` without its second half, RFC 8259 section 8.2), which UTF-8 can neither send nor
store. Clients that cut a text by UTF-16 units send such halves, so they are replaced on arrival.
Workers of crews are refused such JSON instead (`crews/protocol.py`): their authors can correct it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

MAX_LINE: Final = 300
"""Characters of a foreign text that an error or a log repeats."""
REPLACEMENT: Final = "\ufffd"
"""Unicode's REPLACEMENT CHARACTER, which stands for a lone surrogate."""

_ESCAPES: Final = (rb"\ud", rb"\uD")
_HIGH: Final = rb"[89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"[c-fC-F][0-9a-fA-F]{2}"
# A high surrogate without a low one behind it, or a low one without a high one before it.
_LONE: Final = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)


def escape_unprintable(text: str) -> str:
    """Return `text` with an escape for each character that cannot be printed."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def blank_unprintable(text: str) -> str:
    """Return `text` with a blank for each character that cannot be printed. The length stays."""
    return "".join(each if each.isprintable() else " " for each in text)


def first_line(text: str) -> str:
    """Return the first line of `text`, cut after `MAX_LINE` characters, which "…" then shows."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= MAX_LINE else f"{first[:MAX_LINE]}…"


def load_json(text: str) -> Any:
    """Return the value of a JSON text, with its lone surrogates replaced.

    Raises:
        ValueError: `text` is not JSON.
        RecursionError: `text` is nested too deeply.
    """
    return json.loads(replace_lone_surrogates(text.encode()).decode())


def replace_lone_surrogates(content: bytes) -> bytes:
    """Return the JSON text `content` with each lone surrogate replaced.

    Returns the same object if there is none. What is not JSON stays not JSON.
    """
    if b"\\" not in content or not any(escape in content for escape in _ESCAPES):
        return content  # the first check is the cheapest, and mostly the only one
    # An escaped backslash, written as `\u005c`, hides no escape and makes none.
    spelt_out = content.replace(rb"\\", rb"\u005c")
    replaced, count = _LONE.subn(rb"\\ufffd", spelt_out)
    return replaced if count else content
