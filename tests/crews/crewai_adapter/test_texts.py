"""The words and bounds of the CrewAI adapter: pure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smartlinkd.crews import protocol
from smartlinkd.crews.crewai_adapter import texts
from smartlinkd.crews.crewai_adapter.texts import cut, encode, redact, thought_of, to_json
from smartlinkd.crews.protocol import Inputs


def test_the_bounds_are_the_protocols() -> None:
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
def test_a_cut_text_fits_and_is_no_shorter_than_it_must_be(text: str, limit: int) -> None:
    size = len(json.dumps(cut(text, limit), ensure_ascii=False).encode())
    assert limit - 40 <= size <= limit
    assert cut(text, limit).endswith(f"… (cut: {len(text)} characters in all)")


def test_a_text_that_fits_is_not_cut() -> None:
    assert cut("ắ" * 30, 92) == "ắ" * 30


def test_a_line_is_utf_8_also_of_half_a_pair() -> None:
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
def test_what_is_told_of_a_value(value: object, told: object) -> None:
    assert to_json(value) == told


def test_a_value_that_is_nested_too_deeply_is_not_told() -> None:
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
def test_the_thought_in_what_an_agent_writes(text: str, thought: str | None) -> None:
    assert thought_of(text) == thought


def test_secrets_are_told_by_the_names_of_their_variables() -> None:
    environment = {
        "A_TOKEN": "abcdefgh-more",
        "API_KEY": "abcdefgh",
        "AUTH": "no",
        "HOME": "/home/me",
    }
    text = "abcdefgh and abcdefgh-more, no, /home/me"
    assert redact(text, environment) == "[API_KEY] and [A_TOKEN], no, /home/me"
