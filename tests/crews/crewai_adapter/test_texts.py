"""The words and bounds of the CrewAI adapter: pure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smartlinkd.crews import protocol
from smartlinkd.crews.crewai_adapter import texts
from smartlinkd.crews.crewai_adapter.texts import cut, encode, redact, thought_of, to_json
from smartlinkd.crews.protocol import Inputs


def test_bounds_are_within_the_protocols() -> None:
    names = ("MAX_LINE", "MAX_WAITING_CALLS", "MAX_ID")
    assert [getattr(texts, name) for name in names] == [getattr(protocol, name) for name in names]
    bounds = (protocol.MAX_MESSAGES, protocol.MAX_OUTPUT)
    assert all(map(int.__lt__, texts.STEPS_UNTIL, texts.CALLS_UNTIL))
    assert all(map(int.__lt__, texts.CALLS_UNTIL, bounds))
    assert texts.NAME <= protocol.MAX_NAME
    assert texts.TEXT <= protocol.MAX_TEXT
    assert texts.ERROR <= protocol.MAX_ERROR


@pytest.mark.parametrize("limit", [100, 1000])
@pytest.mark.parametrize("text", ["x" * 5000, "\x00" * 5000, "ắ" * 5000, '"' * 5000, "\n😀" * 3000])
def test_cut_text_fits_and_is_not_too_short(text: str, limit: int) -> None:
    size = len(json.dumps(cut(text, limit), ensure_ascii=False).encode())
    assert limit - 40 <= size <= limit
    assert cut(text, limit).endswith(f"… (cut: {len(text)} characters in all)")


def test_text_that_fits_is_not_cut() -> None:
    assert cut("ắ" * 30, 92) == "ắ" * 30


def test_line_with_half_a_surrogate_pair_is_utf_8() -> None:
    assert encode({"a": "\ud800ắ", "b": None}) == '{"a": "?ắ"}\n'.encode()


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": (1, "x", None)}, {"a": [1, "x", None]}),
        (Inputs(inputs={}), {"type": "inputs", "version": 1, "inputs": {}, "tools": []}),
        ({"path": Path("/x")}, {"path": "/x"}),
        (float("inf"), None),
        ({("a", "b"): 1}, None),
    ],
)
def test_value_is_converted_to_json(value: object, told: object) -> None:
    assert to_json(value) == told


def test_value_that_is_nested_too_deeply_is_left_out() -> None:
    value: object = 1
    for _ in range(texts.NESTING):
        value = [value]
    assert to_json(value) == value
    assert to_json([value]) is None
    for _ in range(100_000):
        value = [value]
    assert to_json(value) is None


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("Thought: I see\nAction: find\nAction Input: {}", "I see"),
        ("Thought: I see\nFinal Answer: it", "I see"),
        ("Final Answer: it", None),
        ("no such form", None),
    ],
)
def test_thought_is_read_from_an_agents_text(text: str, thought: str | None) -> None:
    assert thought_of(text) == thought


def test_secrets_are_replaced_by_the_names_of_their_variables() -> None:
    environment = {
        "A_TOKEN": "abcdefgh-more",
        "API_KEY": "abcdefgh",
        "AUTH": "no",
        "HOME": "/home/me",
    }
    text = "abcdefgh and abcdefgh-more, no, /home/me"
    assert redact(text, environment) == "[API_KEY] and [A_TOKEN], no, /home/me"
