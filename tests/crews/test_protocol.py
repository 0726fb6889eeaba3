"""A worker's lines: which are messages, which may come when, and what is said of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smartlinkd.crews.protocol import (
    MAX_ERROR,
    MAX_ID,
    MAX_LINE,
    MAX_MESSAGES,
    MAX_NAME,
    MAX_TEXT,
    MAX_WAITING_CALLS,
    Conversation,
    Failed,
    FromWorker,
    HumanFeedback,
    HumanInput,
    Inputs,
    Log,
    ProtocolFault,
    Result,
    Started,
    Step,
    Stop,
    TaskCompleted,
    TaskStarted,
    TokenUsage,
    ToolCall,
    ToolResult,
    encode,
    parse,
    quoted,
)


def line(type: str, **fields: Any) -> bytes:
    return json.dumps({"type": type, **fields}).encode()


def fault(sent: bytes) -> str:
    parsed = parse(sent)
    assert isinstance(parsed, ProtocolFault)
    assert parsed.line == sent
    return parsed.reason


USAGE = TokenUsage(total_tokens=3, prompt_tokens=2, completion_tokens=1)


@pytest.mark.parametrize(
    "message",
    [
        Started(total_tasks=3),
        TaskStarted(task_id="1", name="n", agent="a", description="d", expected_output="e"),
        TaskCompleted(task_id="1", output="o", output_json=[1]),
        Step(
            task_id="1", agent="a", prompt="p", thought="t", tool="x", tool_input={"q": 1},
            result="r",
        ),
        Log(level="error", text=""),
        ToolCall(call_id="c", tool="x", arguments={"a": [None]}),
        HumanInput(task_id="1", prompt="?", output="o"),
        Result(output="o", output_json={"a": 1}, token_usage=USAGE),
        Failed(error="e"),
    ],
    ids=lambda message: message.type,
)  # fmt: skip
def test_line_is_parsed_into_its_message(message: FromWorker) -> None:
    """The names and fields in such a line are held to the document by test_worker_examples.py."""
    assert parse(message.model_dump_json().encode()) == message


def test_text_may_be_utf_8_or_escaped() -> None:
    assert parse('{"type":"log","text":"Chào 👋"}'.encode()) == Log(text="Chào 👋")
    assert parse(line("log", text="Chào 👋")) == Log(text="Chào 👋")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "a line is not valid JSON: EOF while parsing a value at line 1 column 0"),
        (b'{"type":"started"', "a line is not valid JSON: EOF while parsing an object"),
        (b'{"type":"log","text":"\xff"}', "a line is not valid JSON: invalid unicode"),
        (b'{"type":"step","tool_input":' + b"[" * 5000, "a line is not valid JSON: recursion"),
        (b"[]", "a line must be an object"),
        (b"{}", "a line has no 'type'"),
        (line("finished"), "a line has an unknown 'type', known are 'started', 'task_started'"),
        (line("task_started"), "task_started.task_id: is missing"),
        (line("task_started", task_id=""), "task_started.task_id: is too short (at least 1 "),
        (line("task_started", task_id="a\nb"), "task_started.task_id: must match "),
        (line("result", output=None), "result.output: must be a string"),
        (line("failed", error=""), "failed.error: is too short (at least 1 "),
        (line("started", total=3), "started.total: is not a field here"),
        (line("started", total_tasks=3.0), "started.total_tasks: must be a whole number"),
        (line("log", text="", level="fatal"), "log.level: must be 'debug', 'info', 'wa"),
        (
            line("result", output="", token_usage={"total_tokens": -1}),
            "result.token_usage.total_tokens: must be 0 or more",
        ),
        (b'{"type":"step","tool_input":NaN}', "step.tool_input: holds NaN or infinity"),
        (
            b'{"type":"result","output":"","output_json":[-Infinity]}',
            "result.output_json: holds NaN or infinity",
        ),
        (
            b'{"type":"tool_call","call_id":"c","tool":"x","arguments":{"a":1e400}}',
            "tool_call.arguments: holds NaN or infinity",
        ),
    ],
)  # fmt: skip
def test_line_that_is_no_message_is_a_fault_with_its_reason(sent: bytes, reason: str) -> None:
    assert fault(sent).lower().startswith(reason.lower())


@pytest.mark.parametrize(
    ("type", "field", "bound", "rest"),
    [
        ("task_started", "task_id", MAX_ID, {}),
        ("task_started", "agent", MAX_NAME, {"task_id": "1"}),
        ("task_started", "description", MAX_TEXT, {"task_id": "1"}),
        ("log", "text", MAX_TEXT, {}),
        ("tool_call", "call_id", MAX_ID, {"tool": "x", "arguments": {}}),
        ("human_input", "prompt", MAX_TEXT, {"task_id": "1"}),
        ("failed", "error", MAX_ERROR, {}),
    ],
)
def test_text_beyond_its_bound_is_a_fault(
    type: str, field: str, bound: int, rest: dict[str, Any]
) -> None:
    assert not isinstance(parse(line(type, **rest, **{field: "x" * bound})), ProtocolFault)
    assert f"at most {bound}" in fault(line(type, **rest, **{field: "x" * (bound + 1)}))


def test_line_beyond_its_bound_is_a_fault() -> None:
    room = MAX_LINE - len(line("result", output=""))
    assert parse(line("result", output="x" * room)) == Result(output="x" * room)
    assert fault(line("result", output="x" * (room + 1))) == (
        "a line may have 1048576 bytes, this has more"
    )


def test_reason_quotes_foreign_text_short_and_printable() -> None:
    reason = fault(line("started", **{"\x1b[31m" + "x" * 5000: 1}))
    assert reason.startswith("started.\\x1b[31mxxx")
    assert len(reason) < 300


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ('{"type": "x"}', '{"type": "x"}'),
        ("Chào 👋", "Chào 👋"),
        ("a\x1b[31m\r\u202eb", "a\\x1b[31m\\r\\u202eb"),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 300 + "… (301 characters)"),
    ],
)
def test_quote_is_short_and_printable(text: str, quote: str) -> None:
    assert quoted(text) == quote


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        (
            Inputs(inputs={"topic": "Chào", "n": [1, None]}, tools=("convert_links",)),
            '{"type":"inputs","version":1,"inputs":{"topic":"Chào","n":[1,null]},'
            '"tools":["convert_links"]}',
        ),
        (
            ToolResult(call_id="c", result={"a": 1}),
            '{"type":"tool_result","call_id":"c","result":{"a":1},"error":null}',
        ),
        (
            HumanFeedback(task_id="1", feedback="two\nlines", approved=False),
            '{"type":"human_feedback","task_id":"1","feedback":"two\\nlines","approved":false}',
        ),
        (Stop(), '{"type":"stop"}'),
    ],
)
def test_encoded_message_is_one_line(
    message: Inputs | ToolResult | HumanFeedback | Stop, sent: str
) -> None:
    assert encode(message) == f"{sent}\n".encode()


def test_repr_of_a_message_hides_its_content() -> None:
    assert repr(Log(text="secret")) == str(Log(text="secret")) == "<Log>"


STARTED = line("started")
LOG = line("log", text="")
STEP = line("step")
RESULT = line("result", output="o")
FAILED = line("failed", error="e")


def opened(task: str) -> bytes:
    return line("task_started", task_id=task)


def completed(task: str) -> bytes:
    return line("task_completed", task_id=task, output="o")


def step(task: str) -> bytes:
    return line("step", task_id=task)


def call(number: str) -> bytes:
    return line("tool_call", call_id=number, tool="x", arguments={})


def human(task: str) -> bytes:
    return line("human_input", task_id=task, prompt="?")


def hear(*lines: bytes, conversation: Conversation | None = None) -> FromWorker | ProtocolFault:
    """Return what comes of the last line; the lines before it must be in order."""
    conversation = conversation or Conversation()
    *before, last = [conversation.receive(one) for one in lines]
    assert not [one for one in before if isinstance(one, ProtocolFault)]
    return last


@pytest.mark.parametrize(
    "lines",
    [
        [STARTED, RESULT],
        [STARTED, FAILED],
        [STARTED, LOG, STEP, RESULT],
        [STARTED, opened("1"), step("1"), completed("1"), opened("2"), completed("2"), RESULT],
        [STARTED, opened("1"), completed("1"), step("1")],
        [STARTED, opened("1"), FAILED],
        [STARTED, call("1"), call("2"), RESULT],
        [STARTED, opened("1"), human("1"), opened("2"), completed("2"), FAILED],
    ],
)
def test_messages_in_order_are_accepted(lines: list[bytes]) -> None:
    assert not isinstance(hear(*lines), ProtocolFault)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([RESULT], "`result` before `started`, which is the first message"),
        ([STARTED, STARTED], "`started` a second time"),
        (
            [STARTED, opened("1"), opened("1")],
            "`task_started` with a `task_id` that was used before",
        ),
        ([STARTED, completed("1")], "`task_completed` of a task that is not open"),
        ([STARTED, opened("1"), RESULT], "`result` while a task is open"),
        ([STARTED, step("1")], "`step` of a task that was not started"),
        ([STARTED, call("1"), call("1")], "`tool_call` with a `call_id` that was used before"),
        ([STARTED, human("1")], "`human_input` of a task that is not open"),
        (
            [STARTED, opened("1"), human("1"), human("1")],
            "`human_input` while another one waits",
        ),
        (
            [STARTED, opened("1"), human("1"), completed("1")],
            "`task_completed` of a task about which a human is asked",
        ),
    ],
)
def test_message_out_of_order_is_a_fault_with_its_line(lines: list[bytes], reason: str) -> None:
    assert hear(*lines) == ProtocolFault(reason, lines[-1])


def test_seventeenth_waiting_call_is_a_fault() -> None:
    conversation = Conversation()
    waiting = [call(str(number)) for number in range(MAX_WAITING_CALLS)]
    hear(STARTED, *waiting, conversation=conversation)
    conversation.note_answer(ToolResult(call_id="3"))
    assert not isinstance(conversation.receive(call("one more")), ProtocolFault)
    assert conversation.receive(call("and one")) == ProtocolFault(
        "`tool_call` while 16 others wait for their result", call("and one")
    )


def test_message_beyond_the_most_of_an_execution_is_a_fault() -> None:
    conversation = Conversation()
    conversation.receive(STARTED)
    for _ in range(MAX_MESSAGES - 1):
        assert not isinstance(conversation.receive(STEP), ProtocolFault)
    assert conversation.receive(STEP) == ProtocolFault(
        "an execution may have 10000 messages, this is one more", STEP
    )


def test_bytes_beyond_the_most_of_an_execution_are_a_fault() -> None:
    conversation = Conversation(max_output=len(STARTED) + 2 * len(LOG))
    assert not isinstance(hear(STARTED, LOG, LOG, conversation=conversation), ProtocolFault)
    fault = conversation.receive(LOG)
    assert fault == ProtocolFault(
        f"an execution's messages may have {len(STARTED) + 2 * len(LOG)} bytes in all, "
        "this is over",
        LOG,
    )
