"""The protocol's bounds, and texts and values in the form that the daemon takes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

# A test compares these with the daemon's.
MAX_LINE = 1024 * 1024
MAX_WAITING_CALLS = 16
MAX_ID = 200
# Bytes, so at most as many characters as the protocol allows.
NAME = 1000
TEXT = 64 * 1024
ERROR = 4 * 1024
# An execution may send 10 000 messages and 16 MiB. Steps and logs end at the first pair, tool calls
# at the second. The rest is for tasks' starts and ends, questions to a human, and the result.
STEPS_UNTIL = (8_000, 8 * 1024 * 1024)
CALLS_UNTIL = (9_500, 12 * 1024 * 1024)
# Bytes of a task's output, and of one when there is little room left.
OUTPUT = 256 * 1024
SHORT_OUTPUT = 2 * 1024
STEP_TEXT = 32 * 1024
# Levels. The protocol allows some 200, and an output is a few levels deep in its message.
NESTING = 100
# Characters. A shorter value is no secret, and would be found in ordinary words.
SHORTEST_SECRET = 8


class Unusable(Exception):  # noqa: N818 - its text is for the project's owner
    """The project cannot be run. The text says why."""


def cut(text: str, limit: int) -> str:
    """Return `text`, or its beginning and its length, in at most `limit` bytes of JSON."""
    if len(text) <= limit and _size(text) <= limit:
        return text
    rest = f"… (cut: {len(text)} characters in all)"
    room = limit - _size(rest)
    kept = text[:room]
    while (size := _size(kept)) > room:
        kept = kept[: len(kept) * room // size - 1]
    return kept + rest


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message's line. Fields that are None are left out; a lone surrogate becomes `?`."""
    said = {name: value for name, value in message.items() if value is not None}
    text = json.dumps(said, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"


def to_json(value: Any) -> Any:
    """Return plain JSON, models as fields, other objects as text; None if invalid or too deep."""
    try:
        text = json.dumps(value, default=_fields, allow_nan=False)
        return json.loads(text) if _depth(json.loads(text)) <= NESTING else None
    except (TypeError, ValueError, RecursionError):
        return None


def _fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, (dict, list)) else 0


def thought_of(text: str) -> str | None:
    """Return the thought in `Thought: … Action: …` or `Thought: … Final Answer: …`, else None."""
    marker = re.search("^(Action|Final Answer):", text, re.MULTILINE)
    return (
        text[: marker.start()].strip().removeprefix("Thought:").strip() or None if marker else None
    )


def redact(text: str, environment: Mapping[str, str]) -> str:
    """Return `text` without the values of variables that are named like secrets."""
    secrets = [
        (value, name)
        for name, value in environment.items()
        if len(value) >= SHORTEST_SECRET
        and re.search("KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", name.upper())
    ]
    for value, name in sorted(secrets, key=lambda pair: len(pair[0]), reverse=True):
        text = text.replace(value, f"[{name}]")
    return text


def describe(error: BaseException) -> str:
    """Return one line about an error, without secrets."""
    text = " ".join(redact(str(error), os.environ).split())
    if not isinstance(error, Unusable):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return cut(text, ERROR)
