"""Which webhook calls a moment of an execution asks for, and what they say: pure rules.

Receivers are written against what deployed CrewAI crews send, so these are their bodies, key for
key, with the `meta` of the kickoff in all but the stream's (CrewAI AMP, "Webhook Automation",
"Webhook Streaming" and "Human-in-the-Loop"). Two things are not documented there, and settled here:

* What a failed crew sends. It is the body of a good end, whose `result` is null, and beside it
  `error`, `state` and `status`: a receiver that takes every such call for a success finds nothing
  to publish, instead of an error's text.
* The names in a call for human input: only that it tells the execution, the task and the task's
  output. They are called here as `/resume` takes them, and the output by both names in use.

A body is made once, when its call is queued. All attempts send the same bytes, so a receiver that
gets a call twice can tell by the id of an event, or of the call (see `signing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from pydantic import JsonValue
from pydantic_core import to_json

from smartlinkd.crews.ending import About, Ending
from smartlinkd.crews.protocol import HumanInput, Step
from smartlinkd.journal.model import (
    NewDelivery,
    NewEvent,
    Status,
    TaskRecord,
    WebhookKind,
    WebhookTarget,
)
from smartlinkd.wire import timestamp

TOKEN_COUNTS = ("total_tokens", "prompt_tokens", "completion_tokens")
SUMMARY_WORDS = 10
"""CrewAI's summary of a task is so many words of its description."""

Body = dict[str, JsonValue]


What = Step | TaskRecord | HumanInput | Ending


def calls_for(about: About, event: NewEvent, what: What | None) -> list[NewDelivery]:
    """The calls that are owed for an event, due at its time, in the order of the targets.

    `what` is the thing that the event tells of, where there is one: targets of a kind of their own
    get that. Targets of the kind `stream` get the event itself when they name its type; one that
    names none gets all (CrewAI does not say what an empty list means).
    """
    if not about.webhooks:
        return []  # as most have none: a body may be of some MiB
    own = None if what is None else (_kind(what), to_json(_body(about, what)))
    stream = to_json(_stream_body(about, event))
    return [
        NewDelivery(target, body, event.timestamp)
        for target in about.webhooks
        for body in _bodies(target, event, own, stream)
    ]


def _bodies(
    target: WebhookTarget, event: NewEvent, own: tuple[WebhookKind, bytes] | None, stream: bytes
) -> Iterator[bytes]:
    if target.kind == "stream":
        if not target.events or event.type in target.events:
            yield stream
    elif own is not None and own[0] == target.kind:
        yield own[1]


def _kind(what: What) -> WebhookKind:
    match what:
        case Step():
            return "step"
        case TaskRecord():
            return "task"
        case HumanInput():
            return "human_input"
        case Ending():
            return "crew"


def _body(about: About, what: What) -> Body:
    match what:
        case Step():
            return _step_body(about, what)
        case TaskRecord():
            return _task_body(about, what)
        case HumanInput():
            return _human_input_body(about, what)
        case Ending():
            return _crew_body(about, what)


def _stream_body(about: About, event: NewEvent) -> Body:
    return {
        "events": [
            {
                # Not its number in the journal, which is given when it is recorded.
                "id": str(uuid4()),
                "execution_id": about.execution_id,
                "timestamp": timestamp(event.timestamp),
                "type": event.type,
                "data": {} if event.data is None else event.data,
            }
        ]
    }


def _step_body(about: About, step: Step) -> Body:
    return {
        "prompt": step.prompt,
        "thought": step.thought,
        "tool": step.tool,
        "tool_input": step.tool_input,
        "result": step.result,
        "kickoff_id": about.execution_id,
        "meta": about.meta,
    }


def _task_body(about: About, task: TaskRecord) -> Body:
    return {
        "description": task.description,
        "name": task.name,
        "expected_output": task.expected_output,
        "summary": _summary(task.description),
        "agent": task.agent,
        "output": task.output,
        "output_json": task.output_json,
        "kickoff_id": about.execution_id,
        "meta": about.meta,
    }


def _summary(description: str | None) -> str | None:
    if not description:
        return None
    return " ".join(description.split(" ")[:SUMMARY_WORDS]) + "..."


def _crew_body(about: About, ending: Ending) -> Body:
    # An object also when the crew told no counts: receivers read the counts without looking.
    usage = ending.token_usage or {}
    body: Body = {
        "kickoff_id": about.execution_id,
        "result": ending.result,
        "result_json": ending.result_json,
        "token_usage": {name: usage.get(name, 0) for name in TOKEN_COUNTS},
        "meta": about.meta,
    }
    if ending.status is not Status.COMPLETED:
        body |= {
            "error": ending.error,
            "state": ending.status.state.value,
            "status": ending.status.value,
        }
    return body


def _human_input_body(about: About, question: HumanInput) -> Body:
    return {
        "kickoff_id": about.execution_id,
        "execution_id": about.execution_id,
        "task_id": question.task_id,
        "prompt": question.prompt,
        "output": question.output,
        "task_output": question.output,
        "meta": about.meta,
    }
