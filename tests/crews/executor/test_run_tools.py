"""What a worker may ask of the daemon, and what becomes of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd.store.model import ExecutionState, Status

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse


def call(tool: str, call_id: str = "1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "tool": tool, "arguments": arguments}


async def heard(house: House, kickoff_id: str) -> list[Any]:
    """What the worker was answered."""
    return [json.loads(text) for text in await house.logs(kickoff_id)]


async def test_a_tool_gets_its_arguments_and_the_worker_its_result(house: House) -> None:
    kickoff_id = await house.kickoff("started", call("add", x=2, y=3), "hear", "result ok")
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    (answer,) = await heard(house, kickoff_id)
    assert answer == {
        "type": "tool_result",
        "call_id": "1",
        "result": {"sum": 5},
        "error": None,
    }
    events = {event.type: event.data for event in await house.events(kickoff_id)}
    assert events["tool_usage_started"] == {
        "call_id": "1",
        "tool": "add",
        "arguments": {"x": 2, "y": 3},
    }
    assert events["tool_usage_finished"] == {"call_id": "1", "tool": "add", "error": None}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "links: there are none; give one"),
        ({"links": ["a"]}, "too many links wait; try again shortly"),
    ],
    ids=["its own fault", "not its fault"],
)
async def test_a_refusal_is_the_workers_to_deal_with(
    house: House, arguments: dict[str, Any], error: str
) -> None:
    kickoff_id = await house.kickoff("started", call("refuse", **arguments), "hear", "result ok")
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    (answer,) = await heard(house, kickoff_id)
    assert (answer["result"], answer["error"]) == (None, error)
    finished = [e.data for e in await house.events(kickoff_id) if e.type == "tool_usage_finished"]
    assert finished == [{"call_id": "1", "tool": "refuse", "error": answer["error"]}]


@pytest.mark.parametrize(
    ("allowed", "error"),
    [
        (("gate", "add"), "tool: this crew may not use 'refuse', but gate, add; "),
        ((), "tool: this crew may not use 'refuse', but none; "),
    ],
)
async def test_a_tool_that_the_crew_may_not_use(
    open_house: OpenHouse, crew: MakeCrew, allowed: tuple[str, ...], error: str
) -> None:
    house = await open_house(crew(tools=allowed))
    kickoff_id = await house.kickoff("started", call("refuse"), "hear", "result ok")
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    assert (await heard(house, kickoff_id))[0]["error"].startswith(error)


async def test_calls_overlap_and_the_worker_goes_on_in_the_meantime(house: House) -> None:
    kickoff_id = await house.kickoff(
        *("started", call("gate", "1"), call("gate", "2"), "task a", "done a"),
        *(call("add", "3", x=1), "hear", "hear", "hear", "result ok"),
    )
    await house.hears(kickoff_id, "sum")
    await house.gate.reaches(2)
    assert (await house.look(kickoff_id)).completed_tasks == 1
    house.gate.open()
    assert (await house.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    answered = [answer["call_id"] for answer in await heard(house, kickoff_id)]
    assert answered[0] == "3"
    assert sorted(answered) == ["1", "2", "3"]


@pytest.mark.parametrize("last", ["result ok", "failed no luck", "exit 1", "raw {"])
async def test_a_tool_is_cancelled_with_its_worker(house: House, last: str) -> None:
    kickoff_id = await house.kickoff("started", call("gate"), "log called", last)
    end = await house.end_of(kickoff_id)
    assert (end.state is ExecutionState.SUCCESS) == (last == "result ok")
    assert house.gate.waiting == 0
    assert "tool_usage_finished" not in await house.story(kickoff_id)


async def test_a_tool_is_cancelled_by_a_stop(house: House) -> None:
    kickoff_id = await house.kickoff("started", call("gate"), "hear")
    await house.gate.reaches(1)
    await house.stop_one(kickoff_id)
    assert house.gate.waiting == 0


async def test_a_bug_in_a_tool_ends_that_execution_alone(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    other = await house.kickoff("started", "call gate", "hear", "result ok")
    await house.gate.reaches(1)
    kickoff_id = await house.kickoff("started", call("bug"), "hear", "result ok")
    end = await house.end_of(kickoff_id)
    assert (end.status, end.error) == (Status.ERROR, "internal error; the daemon's log has it")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert kickoff_id in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    house.gate.open()
    assert (await house.end_of(other)).state is ExecutionState.SUCCESS
