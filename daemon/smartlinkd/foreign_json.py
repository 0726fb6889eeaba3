r"""JSON that other programs wrote, with U+FFFD in the place of half characters.

A half character is a lone surrogate, such as `\ud83d` without its second half. JSON can carry one
as an escape (RFC 8259, section 8.2). UTF-8 has none, so it can neither be sent on nor stored.
Clients that cut a text by UTF-16 units send such halves. They are replaced where the text comes in,
and the code behind never sees one. Workers of crews are refused such JSON instead
(`crews/protocol.py`), because their authors can correct them.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

LOST: Final = "\ufffd"
"""Unicode's REPLACEMENT CHARACTER, which stands for half a character."""

_ESCAPES: Final = (rb"\ud", rb"\uD")
_HIGH: Final = rb"[89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"[c-fC-F][0-9a-fA-F]{2}"
# A high half without a low one behind it, or a low half without a high one before it.
_HALF: Final = re.compile(
    rb"\\u[dD](?:%b(?!\\u[dD]%b)|%b(?<!\\u[dD]%b\\u[dD]%b))" % (_HIGH, _LOW, _LOW, _HIGH, _LOW)
)


def load_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: `text` is not JSON.
        RecursionError: `text` is nested too deeply.
    """
    return json.loads(without_halves(text.encode()).decode())


def without_halves(content: bytes) -> bytes:
    """Return the JSON text `content` with each half character replaced.

    Return the same object where there is none. What is not JSON stays not JSON.
    """
    if b"\\" not in content or not any(escape in content for escape in _ESCAPES):
        return content  # the first look is the quickest there is, and mostly the only one
    # An escaped backslash, written as `\u005c`, hides no escape and makes none.
    spelt_out = content.replace(rb"\\", rb"\u005c")
    replaced, count = _HALF.subn(rb"\\ufffd", spelt_out)
    return replaced if count else content
