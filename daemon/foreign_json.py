"""JSON of other people's programs, without half characters.

The problem: a string of JavaScript's is made of UTF-16's units, so whoever cuts one may send half
an emoji (a lone surrogate). JSON can carry that, as an escape, and Python's strings can hold it;
but UTF-8 cannot, so an answer, a line to a worker or a row of the journal with it in it cannot be
written, and all that was done for it is lost.

The choice: such a half is U+FFFD, which stands for what could not be read, from the moment at which
the text comes in. Nobody below has to think of it; but an address with it in it leads nowhere.
Clients and workers are refused such JSON instead, by pydantic's parser: they can mend it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

LOST: Final = "\ufffd"
"""What stands for half a character; Unicode's REPLACEMENT CHARACTER."""

_HALF: Final = re.compile("[\ud800-\udfff]")
_ESCAPES: Final = (r"\ud", r"\uD")
"""How halves are written, and whole emoji too, in pairs."""


def load_json(text: str) -> Any:
    """The value that `text` is the JSON of. Raises as `json.loads`: ValueError, RecursionError."""
    value = json.loads(text)
    if not any(escape in text for escape in _ESCAPES):
        return value
    # Pairs are whole characters by now, so that what is left are halves.
    written = json.dumps(value, ensure_ascii=False)
    mended = _HALF.sub(LOST, written)
    return value if mended == written else json.loads(mended)
