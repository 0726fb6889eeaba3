"""Which calls a moment asks for, and their bodies."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import JsonValue

from smartlinkd.crews.model import Subject
from smartlinkd.crews.outcome import Outcome
from smartlinkd.crews.protocol import HumanInput, Step, TokenUsage
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
USED = TokenUsage(total_tokens=3, prompt_tokens=2)
GOOD = Outcome(Status.COMPLETED, "text", {"a": 1}, None, USED)
BAD = Outcome(Status.TIMED_OUT, None, None, "too slow", None)


@pytest.mark.parametrize(
    ("what", "target", "body"),
    [
        (
            STEPPED,
            STEP,
            {
                "prompt": "p",
                "thought": "t",
                "tool": "search",
                "tool_input": {"q": 1},
                "result": "r",
            },
        ),
        (
            DONE,
            TASK,
            {
                "description": "a b c d e f g h i j k l",
                "name": "scout",
                "expected_output": "links",
                "summary": "a b c d e f g h i j...",
                "agent": "the scout",
                "output": "out",
                "output_json": [1],
            },
        ),
        (
            GOOD,
            CREW,
            {
                "result": "text",
                "result_json": {"a": 1},
                "token_usage": {"total_tokens": 3, "prompt_tokens": 2, "completion_tokens": 0},
            },
        ),
        (
            BAD,
            CREW,
            {
                "result": None,
                "result_json": None,
                "token_usage": {"total_tokens": 0, "prompt_tokens": 0, "completion_tokens": 0},
                "error": "too slow",
                "state": "FAILED",
                "status": "timed_out",
            },
        ),
        (
            ASKED,
            HUMAN,
            {
                "execution_id": ID,
                "task_id": "t1",
                "prompt": "Good?",
                "output": "a draft",
                "task_output": "a draft",
            },
        ),
    ],
    ids=["a step", "a task", "a success", "a failure", "a question"],
)
def test_target_of_its_kind_alone_is_called_with_the_documented_body(
    what: Occurrence, target: WebhookTarget, body: dict[str, Any]
) -> None:
    about = Subject(ID, META, (STEP, TASK, CREW, HUMAN))
    (call,) = calls_for(about, NewEvent("x", NOW), what)
    assert (call.target, call.due_at) == (target, NOW)
    assert json.loads(call.body) == {**body, "kickoff_id": ID, "meta": META}


def of_stream(target: WebhookTarget, event: str, data: JsonValue = None) -> list[Any]:
    """Return the bodies of the calls to a target of the kind `stream`."""
    calls = calls_for(Subject(ID, META, (target,)), NewEvent(event, NOW, data), None)
    return [json.loads(call.body) for call in calls]


@pytest.mark.parametrize(("data", "sent"), [({"tool": "x"}, {"tool": "x"}), (None, {})])
def test_body_of_an_event_has_its_data_as_events_has_it(data: JsonValue, sent: JsonValue) -> None:
    (body,) = of_stream(STREAM, "agent_step", data)
    (event,) = body["events"]
    UUID(event.pop("id"))
    assert body.keys() == {"events"}
    assert event == {
        "execution_id": ID,
        "timestamp": "2026-05-04T03:02:01.123Z",
        "type": "agent_step",
        "data": sent,
    }


def test_stream_target_gets_the_types_that_it_names() -> None:
    named = WebhookTarget("stream", STREAM.url, events=("task_completed", "agent_step"))
    assert len(of_stream(named, "agent_step")) == 1
    assert of_stream(named, "log") == []


def test_repr_of_calls_hides_their_content() -> None:
    secret = WebhookTarget("crew", "https://a.example/swordfish")
    about = Subject(ID, "swordfish", (secret,))
    ending = Outcome(Status.COMPLETED, "swordfish", "swordfish", None, None)
    (call,) = calls_for(about, NewEvent("x", NOW), ending)
    assert "swordfish" not in repr((about, ending, call.body and NewEvent("x", NOW, "swordfish")))
