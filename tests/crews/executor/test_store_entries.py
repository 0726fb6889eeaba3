"""What is recorded of each moment: pure rules."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import JsonValue

from smartlinkd.crews.outcome import Subject, failure, success
from smartlinkd.crews.protocol import (
    Failed,
    FromWorker,
    HumanInput,
    Log,
    Result,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    TokenUsage,
    ToolCall,
)
from smartlinkd.crews.store_entries import (
    ExecutionProgress,
    begun,
    ended,
    requeued,
    subject_of,
    together,
)
from smartlinkd.store.model import (
    Execution,
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
    """What is recorded of the last of these."""
    for message in messages[:-1]:
        book.entry_for(message, NOW, 0.0)
    return book.entry_for(messages[-1], LATER, 2.5)


def task(task_id: str, name: str | None = None) -> TaskStarted:
    return TaskStarted(task_id=task_id, name=name)


def test_its_turn_has_come() -> None:
    entry = begun(subject(), NOW)
    assert entry.change == {"status": Status.RUNNING, "started_at": NOW}
    assert entry.events == (NewEvent("crew_kickoff_started", NOW),)


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
def test_what_a_worker_says(
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


def test_total_tasks_stays_what_the_worker_told() -> None:
    assert "total_tasks" not in hear(ledger(), Started(total_tasks=1), task("a"), task("b")).change


@pytest.mark.parametrize("message", [Result(output="x"), Failed(error="x")])
def test_an_end_is_not_for_here(message: FromWorker) -> None:
    with pytest.raises(TypeError, match=message.type):
        ledger().entry_for(message, NOW, 0.0)


def test_an_event_calls_who_wants_it() -> None:
    entry = ledger(STREAM, STEP).entry_for(Step(thought="hm"), NOW, 0.0)
    assert [call.target for call in entry.deliveries] == [STREAM, STEP]
    assert {call.due_at for call in entry.deliveries} == {NOW}


def test_what_is_recorded_together_is_what_comes_of_all() -> None:
    book = ledger(STREAM, WebhookTarget("task", URL))
    said = (
        *(Started(total_tasks=2), task("a"), Step(thought="hm"), Step(thought="ah")),
        *(TaskCompleted(task_id="a", output="1"), task("b")),
        TaskCompleted(task_id="b", output="2"),
    )
    entries = [book.entry_for(message, NOW, 0.0) for message in said]
    entries.append(ended(book.subject, success(Result(output="3")), LATER))
    whole = together(entries)
    change = whole.change
    assert [record.output for record in change["new_tasks"]] == ["1", "2"]
    assert (change["total_tasks"], change["last_step"]) == (2, {"thought": "ah"})
    assert (change["status"], change["current_task"]) == (Status.COMPLETED, None)
    assert (change["result"], change["finished_at"]) == ("3", LATER)
    assert list(whole.events) == [event for entry in entries for event in entry.events]
    assert list(whole.deliveries) == [call for entry in entries for call in entry.deliveries]
    assert len(whole.deliveries) > len(whole.events) > 5
    assert "new_tasks" not in together(entries[:3]).change


# Tasks


def test_a_completed_task_is_kept_with_how_it_began() -> None:
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


def test_a_clock_that_is_set_meanwhile_changes_no_time() -> None:
    book = ledger()
    book.entry_for(task("a"), LATER, 100.0)
    entry = book.entry_for(TaskCompleted(task_id="a", output=""), NOW, 101.5)
    assert entry.change["new_tasks"][0].execution_time == 1.5


def test_the_task_at_hand_is_the_latest_that_is_open() -> None:
    book = ledger()
    assert hear(book, task("a", "one"), task("b")).change["current_task"] == "b"
    done = [TaskCompleted(task_id=each, output="") for each in "ba"]
    assert hear(book, done[0]).change["current_task"] == "one"
    assert hear(book, done[1]).change["current_task"] is None


# A human is asked


def test_a_question_names_what_the_answer_takes() -> None:
    entry = hear(ledger(), task("a", "scout"), HumanInput(task_id="a", prompt="good?", output="x"))
    assert entry.change == {"status": Status.WAITING_FOR_HUMAN_INPUT, "current_task": "a"}
    (event,) = entry.events
    assert event.type == "human_input_requested"
    assert event.data == {"task_id": "a", "prompt": "good?", "output": "x"}


def test_while_a_human_is_asked_the_task_at_hand_is_the_one_in_question() -> None:
    book = ledger()
    entry = hear(book, task("a", "one"), HumanInput(task_id="a", prompt="?"), task("b", "two"))
    assert entry.change["current_task"] == "a"
    answered = book.answered((), approved=False, now=LATER)
    assert answered.change == {"status": Status.RUNNING, "current_task": "two"}
    assert answered.events[0].data == {"task_id": "a", "approved": False}
    book.use_webhooks(())
    assert hear(book, task("c")).change["current_task"] == "c"


def test_an_answer_that_was_refused_has_changed_nothing() -> None:
    book = ledger(STEP)
    hear(book, task("a", "one"), HumanInput(task_id="a", prompt="?"))
    book.answered((STREAM,), approved=True, now=NOW)
    assert hear(book, task("b")).change["current_task"] == "b"  # while it is being recorded
    assert book.answer_refused("a").change == {"current_task": "a"}
    assert hear(book, task("c")).change["current_task"] == "a"
    assert book.subject.webhooks == (STEP,)


def test_new_webhooks_take_the_place_of_their_kinds_and_are_told_of_it() -> None:
    book = ledger(STREAM, STEP)
    hear(book, task("a"), HumanInput(task_id="a", prompt="?"))
    new = (WebhookTarget("stream", "https://new.example/"), WebhookTarget("task", URL))
    entry = book.answered(new, approved=True, now=NOW)
    assert entry.change["webhooks"] == (STEP, *new)
    assert [call.target for call in entry.deliveries] == [new[0]]
    book.use_webhooks(new)
    assert book.subject.webhooks == (STEP, *new)


# The end


def test_a_good_end() -> None:
    usage = TokenUsage(total_tokens=3, prompt_tokens=2, completion_tokens=1)
    entry = ended(
        Subject("some-id", None, (WebhookTarget("crew", URL),)),
        success(Result(output="all", output_json={"a": 1}, token_usage=usage)),
        NOW,
    )
    assert entry.change == {
        "status": Status.COMPLETED,
        "result": "all",
        "result_json": {"a": 1},
        "error": None,
        "current_task": None,
        "finished_at": NOW,
    }
    data: JsonValue = {"status": "completed", "result": "all"}
    assert entry.events == (NewEvent("crew_kickoff_completed", NOW, data),)
    (call,) = entry.deliveries
    assert json.loads(call.body)["token_usage"] == usage.model_dump()


@pytest.mark.parametrize(
    "status", [Status.ERROR, Status.STOPPED, Status.TIMED_OUT, Status.INTERRUPTED]
)
def test_a_bad_end(status: Status) -> None:
    entry = ended(Subject("some-id", None, ()), failure(status, "no luck"), NOW)
    assert entry.change["status"] is status
    assert (entry.change["result"], entry.change["error"]) == (None, "no luck")
    assert entry.change["finished_at"] == NOW
    (event,) = entry.events
    assert (event.type, event.data) == (
        "crew_kickoff_failed",
        {"status": status.value, "error": "no luck"},
    )


def test_beginning_again_forgets_the_run_before() -> None:
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


def test_what_calls_say_of_an_execution() -> None:
    execution = Execution(
        id="some-id",
        crew="c",
        owner="",
        status=Status.RUNNING,
        error=None,
        current_task=None,
        completed_tasks=0,
        total_tasks=None,
        created_at=NOW,
        started_at=None,
        finished_at=None,
        sequence=1,
        inputs={},
        meta={"m": 1},
        webhooks=(STEP,),
        result=None,
        result_json=None,
        tasks=(),
        last_step=None,
    )
    assert subject_of(execution) == Subject("some-id", {"m": 1}, (STEP,))
