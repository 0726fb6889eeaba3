"""Untrusted text and JSON: escaped, blanked or cut, and lone surrogates replaced."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from smartlinkd.untrusted import (
    MAX_LINE,
    blank_unprintable,
    escape_unprintable,
    first_line,
    load_json,
    replace_lone_surrogates,
)


@pytest.mark.parametrize(
    ("text", "with_escapes", "with_blanks"),
    [
        ("", "", ""),
        ("Áo thun 💰", "Áo thun 💰", "Áo thun 💰"),
        ("two\nlines\tand\x1b[2J", "two\\nlines\\tand\\x1b[2J", "two lines and [2J"),
        ("half \ud83d a sign\u2028", "half \\ud83d a sign\\u2028", "half   a sign "),
    ],
    ids=["empty", "printable", "control characters", "what UTF-8 or a line has not"],
)
def test_unprintable_characters_are_escaped_or_blanked(
    text: str, with_escapes: str, with_blanks: str
) -> None:
    assert (escape_unprintable(text), blank_unprintable(text)) == (with_escapes, with_blanks)


def test_a_long_text_is_cut_to_its_first_line() -> None:
    assert first_line("  first\nsecond") == "first"
    assert first_line("x" * 10_000) == "x" * MAX_LINE + "…"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\ud83db"', "a\ufffdb"),
        (r'"\uD83D"', "\ufffd"),
        (r'"\ude00\ud83d"', "\ufffd\ufffd"),
        (r'"\ud83d\ude00\ud83d"', "\U0001f600\ufffd"),
        (r'"\ud83d\\ude00"', "\ufffd\\ude00"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'"\\\ud83d"', "\\\ufffd"),
        (r'"\\ud83d\ude00"', "\\ud83d\ufffd"),
        (r'"\\ud83d\uD83D\uDE00"', "\\ud83d\U0001f600"),
        (r'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
        (r'"\"\ud83d\n\ud83d\u0041"', '"\ufffd\n\ufffdA'),
        (r'{"\ud83d": [{"a": "\udfff"}]}', {"\ufffd": [{"a": "\ufffd"}]}),
        (r'[1e400, 1.10, 9007199254740993, "\ud83d"]', [math.inf, 1.1, 2**53 + 1, "\ufffd"]),
    ],
)
def test_lone_surrogate_is_replaced(text: str, value: object) -> None:
    assert load_json(text) == value


@pytest.mark.parametrize(
    "value",
    ["", "Gi\u00e0y \U0001f600", {"a": [1, 2.5, None, True, "\\ud83d", '"', "\u2028"]}, "\ufffd"],
)
@pytest.mark.parametrize("ascii_alone", [True, False])
def test_json_without_lone_surrogates_is_unchanged(value: Any, ascii_alone: bool) -> None:
    assert load_json(json.dumps(value, ensure_ascii=ascii_alone)) == value


@pytest.mark.parametrize("text", ["", "{", r'"\ud83', "9" * 5000])
def test_invalid_json_raises_valueerror(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|digits"):
        load_json(text)


@pytest.mark.parametrize("text", ["[" * 100_000, r'["\ud83d",' * 100_000])
def test_too_deeply_nested_json_raises_recursionerror(text: str) -> None:
    with pytest.raises(RecursionError):
        load_json(text)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"a": "b"}',
        rb'"\ud83d\ude00 \uD83D\uDE00 \\ \n"',
        rb'"\\ud83d"',
        rb'"\ud8"',
        rb'"\udzzz"',
        b'"\xed\xa0\xbd"',
        b"\xff\\",
    ],
)
def test_replace_lone_surrogates_without_any_returns_the_same_object(content: bytes) -> None:
    assert replace_lone_surrogates(content) is content


@pytest.mark.parametrize(
    ("content", "replaced"),
    [
        (rb'{"\ud83d": "\uDE00"}', rb'{"\ufffd": "\ufffd"}'),
        (rb'"\ud83d', rb'"\ufffd'),
        (b'"\\ud83d\xed\xa0\xbd"', b'"\\ufffd\xed\xa0\xbd"'),
        (rb'"\ud83d\ud8"', rb'"\ufffd\ud8"'),
    ],
)
def test_replace_lone_surrogates_leaves_other_faults(content: bytes, replaced: bytes) -> None:
    assert replace_lone_surrogates(content) == replaced
