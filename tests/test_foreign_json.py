"""Half characters in other people's JSON: lost, and nothing else with them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from daemon.foreign_json import load_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\ud83db"', "a\ufffdb"),
        (r'"\uD83D"', "\ufffd"),
        (r'"\ude00\ud83d"', "\ufffd\ufffd"),
        (r'"\ud83d\ude00\ud83d"', "\U0001f600\ufffd"),
        (r'"\ud83d\\ude00"', "\ufffd\\ude00"),
        (r'"\\ud83d"', "\\ud83d"),
        (r'{"\ud83d": [{"a": "\udfff"}]}', {"\ufffd": [{"a": "\ufffd"}]}),
        (r'[1e400, 1.10, 9007199254740993, "\ud83d"]', [math.inf, 1.1, 2**53 + 1, "\ufffd"]),
    ],
)
def test_a_half_is_replaced(text: str, value: object) -> None:
    assert load_json(text) == value


@pytest.mark.parametrize(
    "value",
    ["", "Gi\u00e0y \U0001f600", {"a": [1, 2.5, None, True, "\\ud83d", '"', "\u2028"]}, "\ufffd"],
)
@pytest.mark.parametrize("ascii_alone", [True, False])
def test_all_else_is_as_it_was(value: Any, ascii_alone: bool) -> None:
    assert load_json(json.dumps(value, ensure_ascii=ascii_alone)) == value


@pytest.mark.parametrize("text", ["", "{", r'"\ud83', "9" * 5000])
def test_what_is_no_json_is_none_here_either(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1|digits"):
        load_json(text)


@pytest.mark.parametrize("text", ["[" * 100_000, r'["\ud83d",' * 100_000])
def test_nor_is_what_is_nested_too_deeply(text: str) -> None:
    with pytest.raises(RecursionError):
        load_json(text)
