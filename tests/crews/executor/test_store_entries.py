"""The store entry of each message and moment: pure rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from smartlinkd.crews.model import Subject
from smartlinkd.crews.protocol import (
    FromWorker,
    HumanInput,
    Log,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    ToolCall,
)
from smartlinkd.crews.store_entries import ExecutionProgress, requeued
from smartlinkd.store.model import (
    ExecutionUpdate,
    NewEvent,
    Status,
    TaskRecord,
    WebhookTarget,
)

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=2.5)
URL = "https://example.com/"
STREAM = WebhookTarget("stream", URL)
STEP = WebhookTarget("step", URL)


def ledger(*webhooks: WebhookTarget) -> ExecutionProgress:
    return ExecutionProgress(Subject("some-id", {"m": 1}, webhooks))


def hear(book: ExecutionProgress, *messages: FromWorker) -> ExecutionUpdate:
    """Return the entry of the last message."""
    for message in messages[:-1]:
        book.entry_for(message, NOW, 0.0)
    return book.entry_for(messages[-1], LATER, 2.5)


def task(task_id: str, name: str | None = None) -> TaskStarted:
    return TaskStarted(task_id=task_id, name=name)


@pytest.mark.parametrize(
    ("message", "change", "event"),
    [
        (Started(total_tasks=3), {"total_tasks": 3}, None),
        (Started(), {"total_tasks": None}, None),
        (
            Step(thought="hm", tool_input=[1]),
            {"last_step": {"thought": "hm", "tool_input": [1]}},
            ("agent_step", {"thought": "hm", "tool_input": [1]}),
        ),
        (Log(text="so"), {}, ("log", {"level": "info", "text": "so"})),
        (
            ToolCall(call_id="1", tool="t", arguments={"x": None}),
            {},
            ("tool_usage_started", {"call_id": "1", "tool": "t", "arguments": {"x": None}}),
        ),
        (
            task("a", "scout"),
            {"current_task": "scout", "total_tasks": 1},
            ("task_started", {"task_id": "a", "name": "scout"}),
        ),
    ],
    ids=lambda value: getattr(value, "type", ""),
)
def test_message_of_a_worker_becomes_a_change_and_an_event(
    message: FromWorker, change: Any, event: tuple[str, Any] | None
) -> None:
    entry = ledger().entry_for(message, NOW, 0.0)
    assert entry.change == change
    assert [(each.type, each.data) for each in entry.events] == ([] if event is None else [event])
    assert {each.timestamp for each in entry.events} <= {NOW}


def test_completed_task_is_recorded_with_its_beginning() -> None:
    began = TaskStarted(
        task_id="a", name="scout", agent="Scout", description="look", expected_output="a list"
    )
    entry = hear(ledger(), began, TaskCompleted(task_id="a", output="two", output_json={"n": 2}))
    assert entry.change == {
        "current_task": None,
        "new_tasks": [
            TaskRecord("a", "scout", "Scout", "look", "a list", "two", {"n": 2}, 2.5),
        ],
    }
    (event,) = entry.events
    assert event.data == {
        "task_id": "a",
        "name": "scout",
        "agent": "Scout",
        "output": "two",
        "execution_time": 2.5,
    }


def test_current_task_is_the_latest_open_one() -> None:
    book = ledger()
    assert hear(book, task("a", "one"), task("b")).change["current_task"] == "b"
    done = [TaskCompleted(task_id=each, output="") for each in "ba"]
    assert hear(book, done[0]).change["current_task"] == "one"
    assert hear(book, done[1]).change["current_task"] is None


def test_current_task_is_the_one_in_question_while_a_human_is_asked() -> None:
    book = ledger()
    entry = hear(book, task("a", "one"), HumanInput(task_id="a", prompt="?"), task("b", "two"))
    assert entry.change["current_task"] == "a"
    answered = book.answered((), approved=False, now=LATER)
    assert answered.change == {"status": Status.RUNNING, "current_task": "two"}
    assert answered.events[0].data == {"task_id": "a", "approved": False}
    assert hear(book, task("c")).change["current_task"] == "c"


def test_requeued_execution_forgets_the_run_before() -> None:
    entry = requeued(Subject("some-id", None, (STREAM,)), NOW)
    assert entry.change == {
        "status": Status.PENDING,
        "started_at": None,
        "current_task": None,
        "total_tasks": None,
        "last_step": None,
        "drop_tasks": True,
    }
    assert entry.events == (NewEvent("crew_execution_requeued", NOW),)
    assert len(entry.deliveries) == 1
