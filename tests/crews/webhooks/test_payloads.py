"""Which calls a moment asks for, and their bodies."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import JsonValue

from smartlinkd.crews.outcome import Outcome, Subject
from smartlinkd.crews.protocol import HumanInput, Step
from smartlinkd.crews.webhooks.payloads import Occurrence, calls_for
from smartlinkd.store.model import NewEvent, Status, TaskRecord, WebhookTarget

NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)
ID = "97eba64f-958c-40a0-b61c-625fe635a3c0"
META: JsonValue = {"requestId": "r-1"}
STEP = WebhookTarget("step", "https://a.example/step")
TASK = WebhookTarget("task", "https://a.example/task")
CREW = WebhookTarget("crew", "https://a.example/crew")
HUMAN = WebhookTarget("human_input", "https://a.example/human")
STREAM = WebhookTarget("stream", "https://a.example/stream")
STEPPED = Step(prompt="p", thought="t", tool="search", tool_input={"q": 1}, result="r")
DONE = TaskRecord("t1", "scout", "the scout", "a b c d e f g h i j k l", "links", "out", [1], 2.5)
ASKED = HumanInput(task_id="t1", prompt="Good?", output="a draft")
GOOD = Outcome(Status.COMPLETED, "text", {"a": 1}, None, {"total_tokens": 3, "prompt_tokens": 2})
BAD = Outcome(Status.TIMED_OUT, None, None, "too slow", None)


def bodies(
    what: Occurrence | None, *targets: WebhookTarget, event: str = "agent_step"
) -> list[Any]:
    about = Subject(ID, META, targets)
    calls = calls_for(about, NewEvent(event, NOW, {"tool": "search"}), what)
    assert all(call.due_at == NOW for call in calls)
    return [json.loads(call.body) for call in calls]


def test_body_of_a_step() -> None:
    assert bodies(STEPPED, STEP) == [
        {
            "prompt": "p",
            "thought": "t",
            "tool": "search",
            "tool_input": {"q": 1},
            "result": "r",
            "kickoff_id": ID,
            "meta": META,
        }
    ]


def test_body_of_a_task() -> None:
    assert bodies(DONE, TASK) == [
        {
            "description": "a b c d e f g h i j k l",
            "name": "scout",
            "expected_output": "links",
            "summary": "a b c d e f g h i j...",
            "agent": "the scout",
            "output": "out",
            "output_json": [1],
            "kickoff_id": ID,
            "meta": META,
        }
    ]


def test_body_of_a_success() -> None:
    usage = {"total_tokens": 3, "prompt_tokens": 2, "completion_tokens": 0}
    assert bodies(GOOD, CREW) == [
        {
            "kickoff_id": ID,
            "result": "text",
            "result_json": {"a": 1},
            "token_usage": usage,
            "meta": META,
        }
    ]


def test_body_of_a_failure_has_its_error_and_no_result() -> None:
    assert bodies(BAD, CREW) == [
        {
            "kickoff_id": ID,
            "result": None,
            "result_json": None,
            "token_usage": {"total_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0},
            "meta": META,
            "error": "too slow",
            "state": "FAILED",
            "status": "timed_out",
        }
    ]


def test_body_of_a_question_names_what_resume_takes() -> None:
    assert bodies(ASKED, HUMAN) == [
        {
            "kickoff_id": ID,
            "execution_id": ID,
            "task_id": "t1",
            "prompt": "Good?",
            "output": "a draft",
            "task_output": "a draft",
            "meta": META,
        }
    ]


def test_body_of_an_event() -> None:
    (body,) = bodies(None, STREAM)
    (event,) = body["events"]
    UUID(event.pop("id"))
    assert body.keys() == {"events"}
    assert event == {
        "execution_id": ID,
        "timestamp": "2026-05-04T03:02:01.123Z",
        "type": "agent_step",
        "data": {"tool": "search"},
    }


def test_body_of_an_event_without_data_has_an_empty_object() -> None:
    """As `/events` has it."""
    (call,) = calls_for(Subject(ID, META, (STREAM,)), NewEvent("crew_kickoff_started", NOW), None)
    assert json.loads(call.body)["events"][0]["data"] == {}


@pytest.mark.parametrize(
    ("what", "kind"), [(STEPPED, STEP), (DONE, TASK), (ASKED, HUMAN), (GOOD, CREW), (BAD, CREW)]
)
def test_target_gets_the_calls_of_its_kind(what: Occurrence, kind: WebhookTarget) -> None:
    targets = (STEP, TASK, CREW, HUMAN)
    calls = calls_for(Subject(ID, META, targets), NewEvent("x", NOW), what)
    assert [call.target for call in calls] == [kind]


def test_stream_target_gets_the_types_that_it_names() -> None:
    named = WebhookTarget("stream", STREAM.url, events=("task_completed", "agent_step"))
    assert len(bodies(None, named, event="agent_step")) == 1
    assert bodies(None, named, event="log") == []


def test_repr_of_calls_hides_their_content() -> None:
    secret = WebhookTarget("crew", "https://a.example/swordfish")
    about = Subject(ID, "swordfish", (secret,))
    ending = Outcome(Status.COMPLETED, "swordfish", "swordfish", None, None)
    (call,) = calls_for(about, NewEvent("x", NOW), ending)
    assert "swordfish" not in repr((about, ending, call.body and NewEvent("x", NOW, "swordfish")))
