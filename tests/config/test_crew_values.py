"""Single values of a crew: what is taken, what it becomes, and what is refused."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest
from pydantic import JsonValue, SecretStr

from smartlinkd.config import crew_values
from smartlinkd.config.crew_values import InputTable
from smartlinkd.validation import BadValue


def nested(levels: int) -> JsonValue:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize("name", ["a", "0", "deal-post", 63 * "a"])
def test_a_slug_is_taken(name: str) -> None:
    assert crew_values.slug(name) == name


@pytest.mark.parametrize("name", ["", "-a", "Deal", "a_b", "a b", "ä", 64 * "a", "a\n", 3, None])
def test_what_is_no_slug_is_refused(name: object) -> None:
    with pytest.raises(BadValue):
        crew_values.slug(name)


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ("topic", InputTable("topic")),
        ({"name": "sub-id_2"}, InputTable("sub-id_2")),
        ({"name": "a", "required": True}, InputTable("a", True)),
        ({"name": "a", "required": False}, InputTable("a", False)),
        ({"name": "a", "default": "x"}, InputTable("a", False, "x")),
        (
            {"name": "a", "default": {"b": [1, 2.5, True]}},
            InputTable("a", False, {"b": [1, 2.5, True]}),
        ),
        ({"name": "a", "default": None}, InputTable("a", False, None)),
        ({"name": "a", "default": nested(20)}, InputTable("a", False, nested(20))),
        ({"name": "a", "description": 2000 * "y"}, InputTable("a", description=2000 * "y")),
        ({"name": "a", "default": 1, "description": "y"}, InputTable("a", False, 1, "y")),
        (100 * "a", InputTable(100 * "a")),
    ],
)
def test_an_input_is_taken(given: object, entry: InputTable) -> None:
    assert crew_values.given_input(given) == entry


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ("", "must have a name"),
        ("two words", "must have a name"),
        ("1a", "must have a name"),
        (101 * "a", "must have a name"),
        (3, "a name in quotes or a table"),
        ({}, "needs the name"),
        ({"name": "a", "requierd": True}, "takes name, required"),
        ({"name": 3}, "text in quotes"),
        ({"name": "a", "required": 1}, "neither true nor false"),
        ({"name": "a", "required": "no"}, "neither true nor false"),
        ({"name": "a", "required": True, "default": 1}, "required and has a default"),
        ({"name": "a", "default": float("inf")}, "no number in JSON"),
        ({"name": "a", "default": float("nan")}, "no number in JSON"),
        ({"name": "a", "default": [datetime.date(2020, 1, 1)]}, "JSON cannot hold"),
        ({"name": "a", "default": nested(21)}, "levels deep"),
        ({"name": "a", "default": {"b": nested(20)}}, "levels deep"),
        ({"name": "a", "default": "\ud800"}, "half of a character"),
        ({"name": "a", "default": {"\ud800": 1}}, "half of a character"),
        ({"name": "a", "description": 3}, "description"),
        ({"name": "a", "description": 2001 * "x"}, "description"),
    ],
)
def test_what_is_no_input_is_refused(given: object, fault: str) -> None:
    with pytest.raises(BadValue) as refused:
        crew_values.given_input(given)
    assert fault in refused.value.fault


@pytest.mark.parametrize(
    ("rule", "given", "fault"),
    [
        (crew_values.argument, "a\0b", "NUL"),
        (crew_values.argument, 32769 * "x", "at most 32768 bytes"),
        (crew_values.argument, 16385 * "á", "at most 32768 bytes"),
        (crew_values.argument, "\ud800", "half of a character"),
        (crew_values.argument, 3, "text in quotes"),
        (crew_values.variable_value, "hunter2\0", "NUL"),
        (crew_values.variable_value, 3, "text in quotes"),
        (crew_values.variable, "A-B", "no name for a variable"),
        (crew_values.variable, "", "no name for a variable"),
        (crew_values.variable, 129 * "A", "no name for a variable"),
        (crew_values.variable, "TMPDIR", "set by the daemon"),
        (crew_values.variable, "SMARTLINKD_ANYTHING", "set by the daemon"),
    ],
)
def test_what_no_process_can_be_given_is_refused(
    rule: Callable[[object], object], given: object, fault: str
) -> None:
    with pytest.raises(BadValue) as refused:
        rule(given)
    assert fault in refused.value.fault
    assert "hunter2" not in refused.value.fault


def test_a_process_can_be_given_as_much_as_that() -> None:
    assert crew_values.argument(16384 * "á") == 16384 * "á"
    assert crew_values.variable(128 * "a") == 128 * "a"


def test_the_value_of_a_variable_is_a_secret() -> None:
    value = crew_values.variable_value("hunter2")
    assert isinstance(value, SecretStr)
    assert value.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(value)
