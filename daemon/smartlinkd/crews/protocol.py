"""The protocol between a crew's worker and the daemon: pure rules.

JSON lines, each a strict model below that its `type` names. A `Conversation` checks which message
may come when. A line that breaks the rules is a `ProtocolFault`, which quotes it for the worker's
author. The fields are described in docs/crew-workers.md, and rejected designs in
docs/decisions/067-talking-to-workers.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from smartlinkd.untrusted import escape_unprintable
from smartlinkd.validation import describe_errors

VERSION: Final = 1
MAX_LINE: Final = 1024 * 1024
"""Bytes of a line without its newline. It bounds what the daemon holds of one worker in memory, and
every text without a smaller bound: a task's output, the result."""
MAX_MESSAGES: Final = 10_000
MAX_OUTPUT: Final = 16 * 1024 * 1024
"""Bytes of one worker's messages. All of them are kept on the disk."""
MAX_WAITING_CALLS: Final = 16
"""Calls that wait for their result at the same time. Each costs the daemon a task."""
# In characters.
MAX_ID: Final = 200
MAX_NAME: Final = 1000
MAX_TEXT: Final = 64 * 1024
MAX_ERROR: Final = 16 * 1024
MAX_QUOTE: Final = 300


def _finite(value: JsonValue) -> JsonValue:
    """Refuse NaN and infinity, which JSON has not, but the parser lets in, also as 1e400."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("holds NaN or infinity, which JSON has not") from None
    return value


Id = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_ID, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
]
Name = Annotated[str, StringConstraints(max_length=MAX_NAME)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Json = Annotated[JsonValue, AfterValidator(_finite)]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_finite)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class Message(BaseModel):
    """A line. Its types are not coerced, and its repr does not show its content."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        cache_strings="keys",  # what workers say is not said again
        defer_build=True,
    )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    __str__ = __repr__


# From the worker


class Started(Message):
    """The first message. `total_tasks` is None if the worker does not know them."""

    type: Literal["started"] = "started"
    total_tasks: Annotated[int, Field(ge=0, le=MAX_MESSAGES)] | None = None


class TaskStarted(Message):
    type: Literal["task_started"] = "task_started"
    task_id: Id
    name: Name | None = None
    agent: Name | None = None
    description: Text | None = None
    expected_output: Text | None = None


class TaskCompleted(Message):
    type: Literal["task_completed"] = "task_completed"
    task_id: Id
    output: str
    output_json: Json = None


class Step(Message):
    """An agent did something within a task (`task_id`), or between tasks."""

    type: Literal["step"] = "step"
    task_id: Id | None = None
    agent: Name | None = None
    prompt: str | None = None
    thought: str | None = None
    tool: Name | None = None
    tool_input: Json = None
    result: str | None = None


class Log(Message):
    type: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"] = "info"
    text: Text


class ToolCall(Message):
    """A call of one of the daemon's tools. A `tool_result` with the same `call_id` answers it."""

    type: Literal["tool_call"] = "tool_call"
    call_id: Id
    tool: Name
    arguments: JsonObject


class HumanInput(Message):
    """A question about a task, and its `output`. A `human_feedback` answers it."""

    type: Literal["human_input"] = "human_input"
    task_id: Id
    prompt: Text
    output: str | None = None


class TokenUsage(BaseModel):
    model_config = Message.model_config

    total_tokens: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class Result(Message):
    """The last message of a success. `output_json` is for an output that is more than a text."""

    type: Literal["result"] = "result"
    output: str
    output_json: Json = None
    token_usage: TokenUsage | None = None


class Failed(Message):
    """The last message of a failure."""

    type: Literal["failed"] = "failed"
    error: Annotated[str, StringConstraints(min_length=1, max_length=MAX_ERROR)]


FromWorker: TypeAlias = (
    Started | TaskStarted | TaskCompleted | Step | Log | ToolCall | HumanInput | Result | Failed
)


# To the worker


class Inputs(Message):
    """The first message. `tools` are the names that `tool_call` may use."""

    type: Literal["inputs"] = "inputs"
    version: Literal[1] = VERSION
    inputs: dict[str, JsonValue]
    tools: tuple[str, ...] = ()


class ToolResult(Message):
    """The answer to a `tool_call`; with an `error`, the call failed and `result` is null."""

    type: Literal["tool_result"] = "tool_result"
    call_id: Id
    result: JsonValue = None
    error: str | None = None


class HumanFeedback(Message):
    """The answer to a `human_input`."""

    type: Literal["human_feedback"] = "human_feedback"
    task_id: Id
    feedback: str
    approved: bool


class Stop(Message):
    """The demand to end now. Signals follow."""

    type: Literal["stop"] = "stop"


ToWorker: TypeAlias = Inputs | ToolResult | HumanFeedback | Stop


@dataclass(frozen=True)
class ProtocolFault:
    """A fault, and the line that has it; None if it is not in one line."""

    reason: str
    line: bytes | None = field(default=None, repr=False)


_FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(
    Annotated[FromWorker, Field(discriminator="type")],
    config=ConfigDict(cache_strings="keys", defer_build=True),
)


def encode(message: ToWorker) -> bytes:
    """Return the line to send, with its newline."""
    return message.model_dump_json().encode() + b"\n"


def parse(line: bytes) -> FromWorker | ProtocolFault:
    """Return the message in a line without its newline, or the line's fault."""
    if len(line) > MAX_LINE:
        return ProtocolFault(f"a line may have {MAX_LINE} bytes, this has more", line)
    try:
        return _FROM_WORKER.validate_json(line)
    except ValidationError as invalid:
        return ProtocolFault(escape_unprintable(describe_errors(invalid, whole="a line")), line)


def quoted(text: str) -> str:
    """Return the beginning of a worker's text, fit for a log and an error."""
    rest = f"… ({len(text)} characters)" if len(text) > MAX_QUOTE else ""
    return escape_unprintable(text[:MAX_QUOTE]) + rest


class Conversation:
    """Checks which message may come when, from a worker's first line to its last."""

    def __init__(self, *, max_output: int = MAX_OUTPUT) -> None:
        self.final: Result | Failed | None = None
        self._left_bytes = self._max_output = max_output
        self._left_messages = MAX_MESSAGES
        self._started = False
        self._open_tasks: set[str] = set()
        self._all_tasks: set[str] = set()
        self._waiting_calls: set[str] = set()
        self._all_calls: set[str] = set()
        self._asked: str | None = None  # the task a human is asked about

    def receive(self, line: bytes) -> FromWorker | ProtocolFault:
        """Return the message in the worker's next line, or its fault."""
        message = parse(line)
        if isinstance(message, ProtocolFault):
            return message
        self._left_bytes -= len(line)
        self._left_messages -= 1
        reason = self._too_much() or self._out_of_place(message)
        if reason is not None:
            return ProtocolFault(reason, line)
        self._note(message)
        return message

    def note_answer(self, answer: ToolResult | HumanFeedback) -> None:
        """Note an answer to the worker, which has asked for it."""
        match answer:
            case ToolResult(call_id=call):
                self._waiting_calls.remove(call)
            case HumanFeedback():
                self._asked = None

    def _too_much(self) -> str | None:
        if self._left_messages < 0:
            return f"an execution may have {MAX_MESSAGES} messages, this is one more"
        if self._left_bytes < 0:
            return f"an execution's messages may have {self._max_output} bytes in all, this is over"
        return None

    def _out_of_place(self, message: FromWorker) -> str | None:  # noqa: PLR0911 - a rule a line
        """Return why `message` must not come now; None if it may."""
        if not self._started and not isinstance(message, Started):
            return f"`{message.type}` before `started`, which is the first message"
        match message:
            case Started() if self._started:
                return "`started` a second time"
            case TaskStarted(task_id=task) if task in self._all_tasks:
                return "`task_started` with a `task_id` that was used before"
            case TaskCompleted(task_id=task) if task == self._asked:
                return "`task_completed` of a task about which a human is asked"
            case TaskCompleted(task_id=task) | HumanInput(task_id=task) if (
                task not in self._open_tasks
            ):
                return f"`{message.type}` of a task that is not open"
            case HumanInput() if self._asked is not None:
                return "`human_input` while another one waits"
            case Step(task_id=str(task)) if task not in self._all_tasks:
                return "`step` of a task that was not started"
            case ToolCall(call_id=call) if call in self._all_calls:
                return "`tool_call` with a `call_id` that was used before"
            case ToolCall() if len(self._waiting_calls) >= MAX_WAITING_CALLS:
                return f"`tool_call` while {MAX_WAITING_CALLS} others wait for their result"
            case Result() if self._open_tasks:
                return "`result` while a task is open"
        return None

    def _note(self, message: FromWorker) -> None:
        match message:
            case Started():
                self._started = True
            case TaskStarted(task_id=task):
                self._all_tasks.add(task)
                self._open_tasks.add(task)
            case TaskCompleted(task_id=task):
                self._open_tasks.remove(task)
            case ToolCall(call_id=call):
                self._all_calls.add(call)
                self._waiting_calls.add(call)
            case HumanInput(task_id=task):
                self._asked = task
            case Result() | Failed():
                self.final = message
