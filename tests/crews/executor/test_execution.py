"""One execution from its turn to its outcome: what is recorded, in which order, and its tools."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd.crews.model import CrewUser, Input
from smartlinkd.errors import Invalid, Unprocessable
from smartlinkd.store.actor import Store
from smartlinkd.store.model import (
    ExecutionState,
    ExecutionUpdate,
    Status,
    StoreLimits,
    WebhookTarget,
)

if TYPE_CHECKING:
    from tests.crews.executor.conftest import CrewsDaemon, MakeCrew, StartDaemon, Step


async def test_execution_is_on_disk_before_its_kickoff_is_answered(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff("started", "call gate", "hear", "result ok", meta={"m": 1})
    with closing(sqlite3.connect(daemon.folder / "journal.db")) as other_program:
        found = other_program.execute("SELECT id, crew, meta FROM executions, kickoffs").fetchall()
    assert found == [(kickoff_id, "c", '{"m":1}')]


async def test_execution_with_a_free_slot_runs_when_its_kickoff_is_answered(
    daemon: CrewsDaemon,
) -> None:
    kickoff_id = await daemon.kickoff("call gate", "hear", "result ok")
    assert (await daemon.look(kickoff_id)).state is ExecutionState.RUNNING


async def test_execution_events_and_result_are_complete_and_in_order(daemon: CrewsDaemon) -> None:
    before = datetime.now(UTC)
    kickoff_id = await daemon.kickoff(
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
    end = await daemon.end_of(kickoff_id)

    assert await daemon.story(kickoff_id) == [
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


async def test_input_that_is_not_given_has_its_default(
    start_daemon: StartDaemon, crew: MakeCrew
) -> None:
    inputs = (
        *(Input("topic"), Input("words", False, 90), Input("tone", False, "dry")),
        Input("date", False),
    )
    daemon = await start_daemon(crew(inputs=inputs, tools=("add",)))
    kickoff_id = await daemon.kickoff(
        "started", "given", "result ok", inputs={"topic": None, "tone": "warm", "more": [1]}
    )
    end = await daemon.end_of(kickoff_id)
    (given,) = [json.loads(text) for text in await daemon.logs(kickoff_id)]
    script = given["inputs"].pop("script")
    assert given["inputs"] == {"topic": None, "words": 90, "tone": "warm", "more": [1]}
    assert given["tools"] == ["add"]
    assert end.inputs == {"topic": None, "tone": "warm", "more": [1], "script": script}


async def test_kickoff_without_required_inputs_names_them_and_creates_nothing(
    start_daemon: StartDaemon, crew: MakeCrew
) -> None:
    daemon = await start_daemon(crew(inputs=(Input("topic"), Input("age"), Input("tone", False))))
    with pytest.raises(Unprocessable, match="age, topic") as refusal:
        await daemon.kickoff(inputs={"tone": "dry"})
    assert refusal.value.details == {"missing_inputs": ["age", "topic"]}
    assert await daemon.store.unfinished() == []
    listed = await daemon.executor.executions(CrewUser("c"), state=None, limit=10, cursor=None)
    assert listed.executions == ()


async def test_kickoff_with_a_value_that_is_no_json_creates_nothing(daemon: CrewsDaemon) -> None:
    with pytest.raises(Invalid, match="inputs"):
        await daemon.kickoff(inputs={"x": float("nan")})
    assert await daemon.store.unfinished() == []
    assert (await daemon.end_of(await daemon.kickoff())).state is ExecutionState.SUCCESS


async def test_webhook_calls_are_recorded_in_the_transaction_of_their_event(
    daemon: CrewsDaemon, monkeypatch: pytest.MonkeyPatch
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
    kickoff_id = await daemon.kickoff(
        "started",
        "task a",
        {"type": "step", "thought": "hm"},
        "ask a",
        "hear",
        "done a",
        "result ok",
        webhooks=webhooks,
    )
    await daemon.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await daemon.resume(kickoff_id)
    await daemon.end_of(kickoff_id)

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
    assert len(daemon.owed()) == 6
    assert daemon.calls == 5  # once a transaction


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (["started", "failed no luck today"], "no luck today"),
        (
            ["started", "exit 3"],
            "the worker exited with code 3 without a result; its last words: its last words",
        ),
    ],
)
async def test_worker_that_fails_has_an_error_that_says_how(
    daemon: CrewsDaemon, script: list[Step], error: str
) -> None:
    kickoff_id = await daemon.kickoff(*script)
    end = await daemon.end_of(kickoff_id)
    assert (end.state, end.status) == (ExecutionState.FAILED, Status.ERROR)
    assert error in (end.error or "")
    assert (end.result, end.finished_at is not None) == (None, True)
    last = (await daemon.events(kickoff_id))[-1]
    assert last.type == "crew_kickoff_failed"
    assert last.data == {"status": "error", "error": end.error}
    assert (await daemon.end_of(await daemon.kickoff())).state is ExecutionState.SUCCESS


async def test_worker_that_cannot_be_started_has_an_error_that_names_its_program(
    start_daemon: StartDaemon, crew: MakeCrew
) -> None:
    daemon = await start_daemon(crew("c", "/no/such/program"))
    kickoff_id = await daemon.kickoff()
    end = await daemon.end_of(kickoff_id)
    assert end.error == (
        "the worker could not be started: /no/such/program: "
        "[Errno 2] No such file or directory: 'program'"
    )
    assert await daemon.story(kickoff_id) == ["crew_kickoff_started", "crew_kickoff_failed"]


async def test_output_of_a_failed_worker_is_logged(
    daemon: CrewsDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    failed = await daemon.end_of(await daemon.kickoff("started", "exit 3"))
    await daemon.comes_to_rest()
    for where, words in (("output", "what it was at"), ("error", "its last words")):
        told = f"execution {failed.id} failed; its worker's standard {where} ended:\n{words}\n"
        assert told in caplog.text
    caplog.clear()
    await daemon.end_of(await daemon.kickoff("started", "result ok"))
    await daemon.comes_to_rest()
    assert "standard" not in caplog.text


@pytest.mark.parametrize("store_limits", [StoreLimits(events=3)])
async def test_messages_beyond_the_stores_limit_fail_the_execution_and_earlier_ones_stay(
    daemon: CrewsDaemon,
) -> None:
    kickoff_id = await daemon.kickoff("started", "log 1", "log 2", "log 3", "hang")
    end = await daemon.end_of(kickoff_id)
    assert "cannot be kept: events: more than 3 in one execution" in (end.error or "")
    assert await daemon.logs(kickoff_id) == ["1", "2"]


def call(tool: str, call_id: str = "1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "tool": tool, "arguments": arguments}


async def heard(daemon: CrewsDaemon, kickoff_id: str) -> list[Any]:
    """Return the answers that the worker has logged."""
    return [json.loads(text) for text in await daemon.logs(kickoff_id)]


async def test_tool_gets_its_arguments_and_the_worker_its_result(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff("started", call("add", x=2, y=3), "hear", "result ok")
    assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    (answer,) = await heard(daemon, kickoff_id)
    assert answer == {
        "type": "tool_result",
        "call_id": "1",
        "result": {"sum": 5},
        "error": None,
    }
    events = {event.type: event.data for event in await daemon.events(kickoff_id)}
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
async def test_tool_that_refuses_answers_the_worker_with_its_error(
    daemon: CrewsDaemon, arguments: dict[str, Any], error: str
) -> None:
    kickoff_id = await daemon.kickoff("started", call("refuse", **arguments), "hear", "result ok")
    assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    (answer,) = await heard(daemon, kickoff_id)
    assert (answer["result"], answer["error"]) == (None, error)
    finished = [e.data for e in await daemon.events(kickoff_id) if e.type == "tool_usage_finished"]
    assert finished == [{"call_id": "1", "tool": "refuse", "error": answer["error"]}]


@pytest.mark.parametrize(
    ("allowed", "error"),
    [
        (("gate", "add"), "tool: this crew may not use 'refuse', but gate, add; "),
        ((), "tool: this crew may not use 'refuse', but none; "),
    ],
)
async def test_tool_that_the_crew_may_not_use_is_refused(
    start_daemon: StartDaemon, crew: MakeCrew, allowed: tuple[str, ...], error: str
) -> None:
    daemon = await start_daemon(crew(tools=allowed))
    kickoff_id = await daemon.kickoff("started", call("refuse"), "hear", "result ok")
    assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    assert (await heard(daemon, kickoff_id))[0]["error"].startswith(error)


async def test_tool_calls_overlap_while_the_worker_goes_on(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff(
        *("started", call("gate", "1"), call("gate", "2"), "task a", "done a"),
        *(call("add", "3", x=1), "hear", "hear", "hear", "result ok"),
    )
    await daemon.hears(kickoff_id, "sum")
    await daemon.gate.reaches(2)
    assert (await daemon.look(kickoff_id)).completed_tasks == 1
    daemon.gate.open()
    assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    answered = [answer["call_id"] for answer in await heard(daemon, kickoff_id)]
    assert answered[0] == "3"
    assert sorted(answered) == ["1", "2", "3"]


@pytest.mark.parametrize("last", ["result ok", "failed no luck", "exit 1", "raw {"])
async def test_tool_is_cancelled_when_its_worker_ends(daemon: CrewsDaemon, last: str) -> None:
    kickoff_id = await daemon.kickoff("started", call("gate"), "log called", last)
    end = await daemon.end_of(kickoff_id)
    assert (end.state is ExecutionState.SUCCESS) == (last == "result ok")
    assert daemon.gate.waiting == 0
    assert "tool_usage_finished" not in await daemon.story(kickoff_id)


async def test_bug_in_a_tool_fails_its_execution_alone(
    daemon: CrewsDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    other = await daemon.kickoff("started", "call gate", "hear", "result ok")
    await daemon.gate.reaches(1)
    kickoff_id = await daemon.kickoff("started", call("bug"), "hear", "result ok")
    end = await daemon.end_of(kickoff_id)
    assert (end.status, end.error) == (Status.ERROR, "internal error; the daemon's log has it")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert kickoff_id in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    daemon.gate.open()
    assert (await daemon.end_of(other)).state is ExecutionState.SUCCESS
