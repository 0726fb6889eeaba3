"""The webhook calls that an event of an execution asks for, and their bodies: pure rules.

The bodies are those that deployed CrewAI crews send, key for key (CrewAI AMP, "Webhook Automation",
"Webhook Streaming", "Human-in-the-Loop"), but for two that are not documented
(docs/decisions/072-webhook-bodies.md). All but the stream's have the kickoff's `meta`.
A body is made once, when its call is queued: all attempts send the same bytes.
"""

from __future__ import annotations

from uuid import uuid4

from pydantic import JsonValue
from pydantic_core import to_json

from smartlinkd.crews.model import Subject
from smartlinkd.crews.outcome import Outcome
from smartlinkd.crews.protocol import HumanInput, Step, TokenUsage
from smartlinkd.store.model import (
    NewDelivery,
    NewEvent,
    Status,
    TaskRecord,
    WebhookKind,
)
from smartlinkd.wire import timestamp

SUMMARY_WORDS = 10
"""CrewAI's summary of a task is so many words of its description."""

Body = dict[str, JsonValue]
Occurrence = Step | TaskRecord | HumanInput | Outcome


def calls_for(
    subject: Subject, event: NewEvent, occurrence: Occurrence | None
) -> list[NewDelivery]:
    """Return the calls that an event asks for, due at its time, in the order of the targets.

    Args:
        subject: The execution, with its targets.
        event: Goes to targets of the kind `stream` that name its type, or name no types. (CrewAI
            does not say what an empty list means.)
        occurrence: Goes to targets of the step, the task, the question or the outcome; None for an
            event that has no such targets.
    """
    if not subject.webhooks:
        return []  # most executions have none, and a body may be of some MiB
    kind, own = None, b""
    if occurrence is not None:
        kind, body = _own_body(subject, occurrence)
        own = to_json(body)
    stream = to_json(_stream_body(subject, event))
    calls = []
    for target in subject.webhooks:
        if target.kind == "stream":
            if not target.events or event.type in target.events:
                calls.append(NewDelivery(target, stream, event.timestamp))
        elif target.kind == kind:
            calls.append(NewDelivery(target, own, event.timestamp))
    return calls


def _own_body(subject: Subject, occurrence: Occurrence) -> tuple[WebhookKind, Body]:
    about: Body = {"kickoff_id": subject.execution_id, "meta": subject.meta}
    match occurrence:
        case Step():
            return "step", about | {
                "prompt": occurrence.prompt,
                "thought": occurrence.thought,
                "tool": occurrence.tool,
                "tool_input": occurrence.tool_input,
                "result": occurrence.result,
            }
        case TaskRecord():
            return "task", about | {
                "description": occurrence.description,
                "name": occurrence.name,
                "expected_output": occurrence.expected_output,
                "summary": _summary(occurrence.description),
                "agent": occurrence.agent,
                "output": occurrence.output,
                "output_json": occurrence.output_json,
            }
        case HumanInput():
            return "human_input", about | {
                "execution_id": subject.execution_id,
                "task_id": occurrence.task_id,
                "prompt": occurrence.prompt,
                "output": occurrence.output,
                "task_output": occurrence.output,
            }
        case Outcome():
            return "crew", about | _crew_body(occurrence)


def _summary(description: str | None) -> str | None:
    if not description:
        return None
    return " ".join(description.split(" ")[:SUMMARY_WORDS]) + "..."


def _crew_body(outcome: Outcome) -> Body:
    body: Body = {
        "result": outcome.result,
        "result_json": outcome.result_json,
        # An object also when the crew reported no counts: receivers read them without looking.
        "token_usage": (outcome.token_usage or TokenUsage()).model_dump(),
    }
    if outcome.status is not Status.COMPLETED:
        body |= {
            "error": outcome.error,
            "state": outcome.status.state.value,
            "status": outcome.status.value,
        }
    return body


def _stream_body(subject: Subject, event: NewEvent) -> Body:
    return {
        "events": [
            {
                # Its number in the store is not known yet.
                "id": str(uuid4()),
                "execution_id": subject.execution_id,
                "timestamp": timestamp(event.timestamp),
                "type": event.type,
                "data": {} if event.data is None else event.data,
            }
        ]
    }
