"""The store entry of each message and moment: pure rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from smartlinkd.crews.outcome import Outcome, Subject
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
from smartlinkd.crews.store_entries import (
    ExecutionProgress,
    ended,
    requeued,
)
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


def subject(*webhooks: WebhookTarget) -> Subject:
    return Subject("some-id", {"m": 1}, webhooks)


def ledger(*webhooks: WebhookTarget) -> ExecutionProgress:
    return ExecutionProgress(subject(*webhooks))


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


def test_total_tasks_counts_the_started_tasks_where_the_worker_told_no_total() -> None:
    book = ledger()
    said = (Started(), task("a"), TaskCompleted(task_id="a", output="1"), task("b"), task("c"))
    changes = [book.entry_for(message, NOW, 0.0).change for message in said]
    assert [change.get("total_tasks") for change in changes] == [None, 1, None, 2, 3]
    assert "total_tasks" not in changes[2]


def test_event_queues_calls_to_its_targets() -> None:
    entry = ledger(STREAM, STEP).entry_for(Step(thought="hm"), NOW, 0.0)
    assert [call.target for call in entry.deliveries] == [STREAM, STEP]
    assert {call.due_at for call in entry.deliveries} == {NOW}


# Tasks


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


# A human is asked


def test_current_task_is_the_one_in_question_while_a_human_is_asked() -> None:
    book = ledger()
    entry = hear(book, task("a", "one"), HumanInput(task_id="a", prompt="?"), task("b", "two"))
    assert entry.change["current_task"] == "a"
    answered = book.answered((), approved=False, now=LATER)
    assert answered.change == {"status": Status.RUNNING, "current_task": "two"}
    assert answered.events[0].data == {"task_id": "a", "approved": False}
    assert hear(book, task("c")).change["current_task"] == "c"


def test_new_webhooks_replace_those_of_their_kinds_at_once() -> None:
    book = ledger(STREAM, STEP)
    hear(book, task("a"), HumanInput(task_id="a", prompt="?"))
    new = (WebhookTarget("stream", "https://new.example/"), WebhookTarget("task", URL))
    entry = book.answered(new, approved=True, now=NOW)
    assert entry.change["webhooks"] == (STEP, *new)
    assert [call.target for call in entry.deliveries] == [new[0]]
    assert book.subject.webhooks == (STEP, *new)


# The end


@pytest.mark.parametrize(
    "status", [Status.ERROR, Status.STOPPED, Status.TIMED_OUT, Status.INTERRUPTED]
)
def test_entry_of_a_failure_has_its_error(status: Status) -> None:
    entry = ended(Subject("some-id", None, ()), Outcome(status, error="no luck"), NOW)
    assert entry.change["status"] is status
    assert (entry.change["result"], entry.change["error"]) == (None, "no luck")
    assert entry.change["finished_at"] == NOW
    (event,) = entry.events
    assert (event.type, event.data) == (
        "crew_kickoff_failed",
        {"status": status.value, "error": "no luck"},
    )


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
