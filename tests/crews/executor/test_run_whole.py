"""A run from its kickoff to its end: what is on disk, in which order, and what is told of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import trio

from smartlinkd.crews.model import CrewUser, Input
from smartlinkd.errors import Invalid, NotFound, Unprocessable
from smartlinkd.store.actor import Store
from smartlinkd.store.model import ExecutionState, ExecutionUpdate, Status, WebhookTarget
from tests.fakes.scrape import observed

if TYPE_CHECKING:
    from tests.crews.executor.conftest import House, MakeCrew, OpenHouse


async def test_an_execution_is_on_disk_before_its_kickoff_is_answered(house: House) -> None:
    kickoff_id = await house.kickoff("started", "call gate", "hear", "result ok", meta={"m": 1})
    with closing(sqlite3.connect(house.folder / "journal.db")) as other_program:
        found = other_program.execute("SELECT id, crew, meta FROM executions, kickoffs").fetchall()
    assert found == [(kickoff_id, "c", '{"m":1}')]


async def test_how_long_it_waited_is_known(open_house: OpenHouse, crew: MakeCrew) -> None:
    house = await open_house(crew(max_running=1))
    ids = [await house.kickoff() for _ in range(3)]
    ended = [await house.end_of(kickoff_id) for kickoff_id in ids]
    waits = [(one.started_at - one.created_at).total_seconds() for one in ended if one.started_at]
    wholes = [
        (one.finished_at - one.created_at).total_seconds() for one in ended if one.finished_at
    ]
    ((count, seconds),) = observed(house.executor.waits).values()
    assert count == 3
    assert (
        sum(waits) <= seconds <= sum(wholes)
    )  # from its turn it is not long to its worker's start
    assert waits == sorted(waits)


async def test_a_run_is_told_in_order_and_whole(house: House) -> None:
    before = datetime.now(UTC)
    kickoff_id = await house.kickoff(
        {"type": "started", "total_tasks": 2},
        {
            "type": "task_started",
            "task_id": "a",
            "name": "scout",
            "agent": "Scout",
            "description": "look around",
            "expected_output": "a list",
        },
        {"type": "step", "task_id": "a", "agent": "Scout", "thought": "hm"},
        {"type": "log", "level": "warning", "text": "slow"},
        "call add",
        "hear",
        {"type": "task_completed", "task_id": "a", "output": "two", "output_json": [1, 2]},
        "task b",
        "done b",
        {
            "type": "result",
            "output": "all done",
            "output_json": {"a": 1},
        },
        meta={"order": 5},
    )
    end = await house.end_of(kickoff_id)

    assert await house.story(kickoff_id) == [
        "crew_kickoff_started",
        "task_started",
        "agent_step",
        "log",
        "tool_usage_started",
        "tool_usage_finished",
        "log",
        "task_completed",
        "task_started",
        "task_completed",
        "crew_kickoff_completed",
    ]
    assert (end.state, end.status, end.error) == (ExecutionState.SUCCESS, Status.COMPLETED, None)
    assert (end.result, end.result_json) == ("all done", {"a": 1})
    assert (end.completed_tasks, end.total_tasks, end.current_task) == (2, 2, None)
    scout, b = end.tasks
    assert (scout.task_id, scout.name, scout.agent) == ("a", "scout", "Scout")
    assert (scout.description, scout.expected_output) == ("look around", "a list")
    assert (scout.output, scout.output_json) == ("two", [1, 2])
    assert (b.task_id, b.name, b.output) == ("b", "task b", "output of b")
    assert end.last_step == {"task_id": "a", "agent": "Scout", "thought": "hm"}
    assert end.meta == {"order": 5}
    assert end.started_at is not None
    assert end.finished_at is not None
    assert before <= end.created_at <= end.started_at <= end.finished_at <= datetime.now(UTC)


async def test_what_is_at_hand_is_told_while_it_runs(house: House) -> None:
    kickoff_id = await house.kickoff(
        {"type": "started", "total_tasks": 1}, "task a", "call gate", "hear", "done a", "result ok"
    )
    await house.gate.reaches(1)
    now = await house.look(kickoff_id)
    assert (now.state, now.status) == (ExecutionState.RUNNING, Status.RUNNING)
    assert (now.current_task, now.completed_tasks, now.total_tasks) == ("task a", 0, 1)
    assert house.executor.load()["c"].running == 1
    house.gate.open()
    await house.end_of(kickoff_id)
    await house.comes_to_rest()
    assert house.executor.ends == {("c", Status.COMPLETED): 1}


@pytest.mark.parametrize(
    ("result", "result_json"),
    [
        ({"output": '{"a": [1]}'}, {"a": [1]}),
        ({"output": '{"a": NaN}'}, None),
        ({"output": '{"a": 1}', "output_json": {"b": 2}}, {"b": 2}),
        ({"output": "all", "output_json": [1]}, None),
        ({"output": '{"a": 1}', "output_json": [1]}, {"a": 1}),
        ({"output": ""}, None),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
async def test_a_result_that_is_an_object_is_given_as_one(
    house: House, result: dict[str, Any], result_json: Any
) -> None:
    kickoff_id = await house.kickoff("started", {"type": "result", **result})
    end = await house.end_of(kickoff_id)
    assert (end.state, end.result) == (ExecutionState.SUCCESS, result["output"])
    assert end.result_json == result_json


# Inputs


async def test_defaults_stand_in_for_what_is_not_given(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    inputs = (
        *(Input("topic"), Input("words", False, 90), Input("tone", False, "dry")),
        Input("date", False),
    )
    house = await open_house(crew(inputs=inputs, tools=("add",)))
    kickoff_id = await house.kickoff(
        "started", "given", "result ok", inputs={"topic": None, "tone": "warm", "more": [1]}
    )
    end = await house.end_of(kickoff_id)
    (given,) = [json.loads(text) for text in await house.logs(kickoff_id)]
    script = given["inputs"].pop("script")
    assert given["inputs"] == {"topic": None, "words": 90, "tone": "warm", "more": [1]}
    assert given["tools"] == ["add"]
    assert end.inputs == {"topic": None, "tone": "warm", "more": [1], "script": script}


async def test_missing_inputs_are_named_and_nothing_is_created(
    open_house: OpenHouse, crew: MakeCrew
) -> None:
    house = await open_house(crew(inputs=(Input("topic"), Input("age"), Input("tone", False))))
    with pytest.raises(Unprocessable, match="age, topic") as refusal:
        await house.kickoff(inputs={"tone": "dry"})
    assert refusal.value.details == {"missing_inputs": ["age", "topic"]}
    assert await house.store.unfinished() == []
    listed = await house.executor.executions(CrewUser("c"), state=None, limit=10, cursor=None)
    assert listed.executions == ()


async def test_values_that_cannot_be_kept_are_refused_and_nothing_is_created(house: House) -> None:
    with pytest.raises(Invalid, match="inputs"):
        await house.kickoff(inputs={"x": float("nan")})
    assert await house.store.unfinished() == []
    assert (await house.end_of(await house.kickoff())).state is ExecutionState.SUCCESS


async def test_a_crew_that_there_is_not(house: House) -> None:
    with pytest.raises(NotFound):
        await house.kickoff(crew="other")


# Webhooks


@pytest.mark.usefixtures("one_by_one")
async def test_calls_are_queued_with_what_they_tell_of(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction: the change, the event and the calls that are owed for it."""
    together: list[tuple[list[str], list[str]]] = []
    create, record = Store.create, Store.record

    def note(entry: ExecutionUpdate) -> None:
        kinds: list[str] = [delivery.target.kind for delivery in entry.deliveries]
        together.append(([event.type for event in entry.events], kinds))

    async def note_creation(self: Store, *args: Any, **named: Any) -> Any:
        note(named["update"])
        return await create(self, *args, **named)

    async def note_record(self: Store, execution_id: str, entry: ExecutionUpdate) -> None:
        note(entry)
        await record(self, execution_id, entry)

    monkeypatch.setattr(Store, "create", note_creation)
    monkeypatch.setattr(Store, "record", note_record)
    url = "https://example.com/"
    webhooks = (
        WebhookTarget("task", url),
        WebhookTarget("step", url),
        WebhookTarget("crew", url),
        WebhookTarget("human_input", url),
        WebhookTarget("stream", url, ("task_started", "crew_kickoff_completed")),
    )
    kickoff_id = await house.kickoff(
        "started",
        "task a",
        {"type": "step", "thought": "hm"},
        "ask a",
        "hear",
        "done a",
        "result ok",
        webhooks=webhooks,
    )
    await house.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await house.resume(kickoff_id)
    await house.end_of(kickoff_id)

    assert together == [
        (["crew_kickoff_started"], []),
        ([], []),  # the number of tasks
        (["task_started"], ["stream"]),
        (["agent_step"], ["step"]),
        (["human_input_requested"], ["human_input"]),
        (["human_feedback_received"], []),
        (["log"], []),
        (["task_completed"], ["task"]),
        (["crew_kickoff_completed"], ["crew", "stream"]),
    ]
    assert len(house.owed()) == 6
    assert house.calls == 5  # once a transaction


async def test_a_failed_run_is_delivered_too(house: House) -> None:
    webhooks = (WebhookTarget("crew", "https://example.com/"),)
    await house.end_of(await house.kickoff("started", "failed no luck", webhooks=webhooks))
    ((_, _, body),) = house.owed()
    assert (body["error"], body["result"]) == ("no luck", None)


async def test_an_idle_executor_ends_at_once(house: House) -> None:
    with trio.fail_after(5):
        await house.stop()
