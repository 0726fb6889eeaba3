"""One execution from its turn to its outcome: what is recorded, in which order, and its tools."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from smartlinkd.crews.model import Input
from smartlinkd.store.model import (
    ExecutionState,
    Status,
    StoreLimits,
    WebhookTarget,
)
from tests.crews.executor.conftest import CrewsDaemon, StartDaemon, make_crew


async def test_execution_with_a_free_slot_runs_when_its_kickoff_is_answered(
    daemon: CrewsDaemon,
) -> None:
    kickoff_id = await daemon.kickoff("call gate", "echo", "result ok")
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
        "echo",
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


async def test_input_that_is_not_given_has_its_default(start_daemon: StartDaemon) -> None:
    inputs = (
        *(Input("topic"), Input("words", False, 90), Input("tone", False, "dry")),
        Input("date", False),
    )
    daemon = await start_daemon(make_crew(inputs=inputs, tools=("add",)))
    kickoff_id = await daemon.kickoff(
        "started", "given", "result ok", inputs={"topic": None, "tone": "warm", "more": [1]}
    )
    end = await daemon.end_of(kickoff_id)
    (given,) = [json.loads(text) for text in await daemon.logs(kickoff_id)]
    script = given["inputs"].pop("script")
    assert given["inputs"] == {"topic": None, "words": 90, "tone": "warm", "more": [1]}
    assert given["tools"] == ["add"]
    assert end.inputs == {"topic": None, "tone": "warm", "more": [1], "script": script}


async def test_calls_to_all_kinds_of_webhooks_are_owed_in_the_order_of_their_events(
    daemon: CrewsDaemon,
) -> None:
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
        "echo",
        "done a",
        "result ok",
        webhooks=webhooks,
    )
    await daemon.reaches(kickoff_id, Status.WAITING_FOR_HUMAN_INPUT)
    await daemon.resume(kickoff_id)
    await daemon.end_of(kickoff_id)

    kinds = [kind for kind, _, _ in daemon.owed()]
    assert kinds == ["stream", "step", "human_input", "task", "crew", "stream"]
    assert daemon.calls == 5  # the last two were queued together


async def test_error_of_a_worker_is_its_executions(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff("started", "failed no luck today")
    end = await daemon.end_of(kickoff_id)
    assert (end.state, end.status) == (ExecutionState.FAILED, Status.ERROR)
    assert end.error == "no luck today"
    assert (end.result, end.finished_at is not None) == (None, True)
    last = (await daemon.events(kickoff_id))[-1]
    assert last.type == "crew_kickoff_failed"
    assert last.data == {"status": "error", "error": end.error}
    assert (await daemon.end_of(await daemon.kickoff())).state is ExecutionState.SUCCESS


async def test_worker_that_exits_has_its_last_words_as_error_and_its_output_logged(
    daemon: CrewsDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    failed = await daemon.end_of(
        await daemon.kickoff("started", "output what it was at", "words its last words", "exit 3")
    )
    assert failed.error == (
        "the worker exited with code 3 without a result; its last words: its last words"
    )
    await daemon.comes_to_rest()
    for where, words in (("output", "what it was at"), ("error", "its last words")):
        told = f"execution {failed.id} failed; its worker's standard {where} ended:\n{words}\n"
        assert told in caplog.text
    caplog.clear()
    await daemon.end_of(await daemon.kickoff("started", "result ok"))
    await daemon.comes_to_rest()
    assert "standard" not in caplog.text


async def test_messages_beyond_the_stores_limit_fail_the_execution_and_earlier_ones_stay(
    start_daemon: StartDaemon,
) -> None:
    daemon = await start_daemon(store_limits=StoreLimits(deliveries=3))
    all_events = WebhookTarget("stream", "https://example.com/")
    script = ("started", "log 1", "log 2", "log 3", "hang")
    kickoff_id = await daemon.kickoff(*script, webhooks=(all_events,))
    end = await daemon.end_of(kickoff_id)
    assert "cannot be kept: webhook calls: more than 3 in one execution" in (end.error or "")
    assert await daemon.logs(kickoff_id) == ["1", "2"]


def call(tool: str, call_id: str = "1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "call_id": call_id, "tool": tool, "arguments": arguments}


async def heard(daemon: CrewsDaemon, kickoff_id: str) -> list[Any]:
    """Return the answers that the worker has logged."""
    return [json.loads(text) for text in await daemon.logs(kickoff_id)]


NOT_GRANTED = "tool: this crew may not use 'refuse', but {}; its configuration grants it (tools)"


@pytest.mark.parametrize(
    ("granted", "tool", "arguments", "result", "error"),
    [
        (("add",), "add", {"x": 2, "y": 3}, {"sum": 5}, None),
        (("refuse",), "refuse", {}, None, "links: there are none; give one"),
        (("refuse",), "refuse", {"links": []}, None, "too many links wait; try again shortly"),
        (("gate", "add"), "refuse", {}, None, NOT_GRANTED.format("gate, add")),
        ((), "refuse", {}, None, NOT_GRANTED.format("none")),
    ],
    ids=["a result", "its own fault", "not its fault", "not granted", "none granted"],
)
async def test_tool_call_is_answered_with_its_result_or_error(  # noqa: PLR0917 - fixtures and a row
    start_daemon: StartDaemon,
    granted: tuple[str, ...],
    tool: str,
    arguments: dict[str, Any],
    result: object,
    error: str | None,
) -> None:
    daemon = await start_daemon(make_crew(tools=granted))
    kickoff_id = await daemon.kickoff("started", call(tool, **arguments), "echo", "result ok")
    assert (await daemon.end_of(kickoff_id)).state is ExecutionState.SUCCESS
    (answer,) = await heard(daemon, kickoff_id)
    assert answer == {"type": "tool_result", "call_id": "1", "result": result, "error": error}
    called: dict[str, Any] = {"call_id": "1", "tool": tool}
    events = {event.type: event.data for event in await daemon.events(kickoff_id)}
    assert events["tool_usage_started"] == {**called, "arguments": arguments}
    assert events["tool_usage_finished"] == {**called, "error": error}


async def test_tool_calls_overlap_while_the_worker_goes_on(daemon: CrewsDaemon) -> None:
    kickoff_id = await daemon.kickoff(
        *("started", call("gate", "1"), call("gate", "2"), "task a", "done a"),
        *(call("add", "3", x=1), "echo", "echo", "echo", "result ok"),
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
    other = await daemon.kickoff("started", "call gate", "echo", "result ok")
    await daemon.gate.reaches(1)
    kickoff_id = await daemon.kickoff("started", call("bug"), "echo", "result ok")
    end = await daemon.end_of(kickoff_id)
    assert (end.status, end.error) == (Status.ERROR, "internal error; the daemon's log has it")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert kickoff_id in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    daemon.gate.open()
    assert (await daemon.end_of(other)).state is ExecutionState.SUCCESS
