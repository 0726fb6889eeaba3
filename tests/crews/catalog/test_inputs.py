"""Which inputs a project needs: CrewAI's rule, on the fields it is applied to."""

from __future__ import annotations

import pytest

from smartlinkd.config.values import InputTable
from smartlinkd.crews.catalog.crewai_project import (
    MAX_INPUTS,
    InputCollector,
    merge_inputs,
    placeholders,
)
from smartlinkd.crews.model import Input


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("about {topic} in {year}", ["topic", "year"]),
        ("{a_b-C9} {_x}", ["a_b-C9", "_x"]),
        ("{topic}{topic}", ["topic", "topic"]),
        ("{{topic}}", ["topic"]),
        ('answer as {"title": "text", "n": 1}', []),
        ('{"deal": {price}}', ["price"]),
        ("{} { topic } {1st} {a b} {a.b} {ä} ${TOPIC", []),
        ("{topic", []),
    ],
)
def test_placeholders_are_those_that_crewai_replaces(text: str, names: list[str]) -> None:
    assert list(placeholders(text)) == names


def names(search: InputCollector) -> list[str]:
    return [each.name for each in search.inputs]


def test_placeholders_count_in_the_fields_that_crewai_replaces() -> None:
    search = InputCollector()
    search.add_agents(
        "agents.yaml",
        {
            "scout": {
                "role": "{a}",
                "goal": "{b}",
                "backstory": "{c}",
                "llm": "{no}",
                "tools": ["{no}"],
            }
        },
    )
    search.add_tasks(
        "tasks.yaml",
        {
            "find": {
                "description": "{d} {a}",
                "expected_output": "{e}",
                "output_file": "{f}.md",
                "agent": "{no}",
                "context": "{no}",
            }
        },
    )
    assert search.inputs == tuple(Input(name) for name in "abcdef")
    assert search.faults == []


def test_inputs_of_a_json_crew_are_defaults() -> None:
    search = InputCollector()
    agents = search.add_crew(
        "crew.json",
        {
            "agents": ["scout"],
            "tasks": [{"description": "{topic} {year}"}],
            "inputs": {"year": 2030, "unused": None},
        },
    )
    search.add_agent("agents/scout.json", {"role": "{old}", "settings": {"role": "{new}"}})
    assert agents == ["scout"]
    assert {each.name: (each.required, each.default) for each in search.inputs} == {
        "year": (False, 2030),
        "unused": (False, None),
        "topic": (True, None),
        "new": (True, None),
    }
    assert search.faults == []


@pytest.mark.parametrize(
    ("name", "default", "fault"),
    [
        ("a", "\ud800", "inputs: a has a default that JSON cannot hold"),
        ("\ud800", 1, 'inputs: "\\ud800" must not hold half of a character'),
        ("a", float("inf"), "inputs: a has a default that JSON cannot hold"),
    ],
)
def test_default_that_is_no_json_is_named(name: str, default: object, fault: str) -> None:
    """Python's reader of JSON takes it, and what lists crews could not write it again."""
    search = InputCollector()
    search.add_crew(
        "crew.json", {"agents": ["a"], "tasks": [{}], "inputs": {name: default, "b": 1}}
    )
    assert search.inputs == (Input("b", required=False, default=1),)
    (found,) = search.faults
    assert found.fault.startswith(f"crew.json: {fault}")
    assert found.remedy


@pytest.mark.parametrize(
    ("crew", "faults"),
    [
        ([], ["crew.json is no table"]),
        ({"agents": ["a"]}, ["crew.json has no list of tasks"]),
        ({"tasks": [{}]}, ["crew.json has no list of agents' names"]),
        ({"tasks": [{}], "agents": [{"role": "x"}]}, ["crew.json has no list of agents' names"]),
        ({"tasks": ["x"], "agents": ["a"]}, ["crew.json: tasks[0] is no table"]),
        ({"tasks": [{}], "agents": ["a"], "inputs": ["x"]}, ["crew.json: inputs is no table"]),
        (
            {"tasks": [{"description": {"topic": None}}], "agents": ["a"]},
            ["crew.json: tasks[0] has a description that is no text"],
        ),
    ],
)
def test_malformed_crew_is_named(crew: object, faults: list[str]) -> None:
    search = InputCollector()
    search.add_crew("crew.json", crew)
    assert [fault.fault for fault in search.faults] == faults
    assert all(fault.remedy for fault in search.faults)


def test_inputs_beyond_the_bound_are_a_fault() -> None:
    search = InputCollector()
    search.add_agent("a.json", {"role": " ".join(f"{{i{n}}}" for n in range(MAX_INPUTS + 1))})
    assert len(search.inputs) == MAX_INPUTS
    assert [fault.fault for fault in search.faults] == ["a.json brings the inputs to more than 200"]


@pytest.mark.parametrize(
    ("configured", "result"),
    [
        (InputTable("topic"), Input("topic")),
        (InputTable("topic", description="why"), Input("topic", description="why")),
        (InputTable("topic", False, "tea"), Input("topic", False, "tea")),
        (InputTable("year"), Input("year", False, 2030)),
        (InputTable("year", True), Input("year", True)),
        (InputTable("year", False, 2031, "why"), Input("year", False, 2031, "why")),
        (InputTable("more"), Input("more")),
    ],
)
def test_configured_input_refines_the_found_one(configured: InputTable, result: Input) -> None:
    found = [Input("topic"), Input("year", False, 2030)]
    inputs = {each.name: each for each in merge_inputs(found, [configured])}
    assert inputs[configured.name] == result
    assert set(inputs) == {"topic", "year", configured.name}
