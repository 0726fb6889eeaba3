"""Which message may come when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from smartlinkd.crews.protocol import (
    MAX_MESSAGES,
    MAX_WAITING_CALLS,
    Conversation,
    Failed,
    FromWorker,
    HumanFeedback,
    ProtocolFault,
    Result,
    ToolResult,
)


def line(type: str, **fields: Any) -> bytes:
    return json.dumps({"type": type, **fields}).encode()


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
    """What comes of the last line; those before must be in place."""
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
        [STARTED, opened("1"), opened("2"), completed("1"), completed("2"), RESULT],
        [STARTED, opened("1"), completed("1"), step("1")],
        [STARTED, opened("1"), FAILED],
        [STARTED, call("1"), call("2"), RESULT],
        [STARTED, opened("1"), human("1"), opened("2"), completed("2"), FAILED],
    ],
)
def test_what_is_in_place(lines: list[bytes]) -> None:
    assert not isinstance(hear(*lines), ProtocolFault)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([RESULT], "`result` before `started`, which is the first message"),
        ([FAILED], "`failed` before `started`, which is the first message"),
        ([LOG], "`log` before `started`, which is the first message"),
        ([STARTED, STARTED], "`started` a second time"),
        (
            [STARTED, opened("1"), opened("1")],
            "`task_started` with a `task_id` that was used before",
        ),
        (
            [STARTED, opened("1"), completed("1"), opened("1")],
            "`task_started` with a `task_id` that was used before",
        ),
        ([STARTED, completed("1")], "`task_completed` of a task that is not open"),
        (
            [STARTED, opened("1"), completed("1"), completed("1")],
            "`task_completed` of a task that is not open",
        ),
        ([STARTED, opened("1"), RESULT], "`result` while a task is open"),
        ([STARTED, step("1")], "`step` of a task that was not started"),
        ([STARTED, call("1"), call("1")], "`tool_call` with a `call_id` that was used before"),
        ([STARTED, human("1")], "`human_input` of a task that is not open"),
        (
            [STARTED, opened("1"), completed("1"), human("1")],
            "`human_input` of a task that is not open",
        ),
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
def test_what_is_out_of_place_is_told_with_the_line(lines: list[bytes], reason: str) -> None:
    assert hear(*lines) == ProtocolFault(reason, lines[-1])


def test_a_line_that_is_no_message_is_a_fault_of_the_conversation() -> None:
    fault = hear(STARTED, b"done")
    assert isinstance(fault, ProtocolFault)
    assert fault.line == b"done"


@pytest.mark.parametrize(
    ("last", "final"), [(RESULT, Result(output="o")), (FAILED, Failed(error="e"))]
)
def test_the_last_message_is_kept(last: bytes, final: Result | Failed) -> None:
    conversation = Conversation()
    heard = hear(STARTED, LOG, last, conversation=conversation)
    assert heard == final
    assert conversation.final is heard


def test_another_message_is_not_kept_as_the_last() -> None:
    conversation = Conversation()
    hear(STARTED, LOG, conversation=conversation)
    assert conversation.final is None


def test_a_human_is_asked_again_after_the_answer() -> None:
    conversation = Conversation()
    hear(STARTED, opened("1"), human("1"), conversation=conversation)
    conversation.note_answer(HumanFeedback(task_id="1", feedback="better", approved=False))
    last = hear(human("1"), conversation=conversation)
    assert not isinstance(last, ProtocolFault)


def test_so_many_calls_may_wait_and_an_answer_makes_room_for_one() -> None:
    conversation = Conversation()
    waiting = [call(str(number)) for number in range(MAX_WAITING_CALLS)]
    hear(STARTED, *waiting, conversation=conversation)
    conversation.note_answer(ToolResult(call_id="3"))
    assert not isinstance(conversation.receive(call("one more")), ProtocolFault)
    assert conversation.receive(call("and one")) == ProtocolFault(
        "`tool_call` while 16 others wait for their result", call("and one")
    )


def test_a_call_that_was_answered_leaves_its_id_used() -> None:
    conversation = Conversation()
    hear(STARTED, call("1"), conversation=conversation)
    conversation.note_answer(ToolResult(call_id="1"))
    assert conversation.receive(call("1")) == ProtocolFault(
        "`tool_call` with a `call_id` that was used before", call("1")
    )


def test_an_answer_without_a_question_is_an_error_of_ours() -> None:
    conversation = Conversation()
    hear(STARTED, opened("1"), opened("2"), human("1"), call("1"), conversation=conversation)
    conversation.note_answer(ToolResult(call_id="1"))
    for answer in (
        ToolResult(call_id="1"),
        ToolResult(call_id="2"),
        HumanFeedback(task_id="2", feedback="", approved=True),
    ):
        with pytest.raises(ValueError, match="no question of the worker's"):
            conversation.note_answer(answer)


def test_an_execution_has_so_many_messages() -> None:
    conversation = Conversation()
    conversation.receive(STARTED)
    for _ in range(MAX_MESSAGES - 1):
        assert not isinstance(conversation.receive(STEP), ProtocolFault)
    assert conversation.receive(STEP) == ProtocolFault(
        "an execution may have 10000 messages, this is one more", STEP
    )


def test_an_execution_has_so_many_bytes() -> None:
    conversation = Conversation(max_output=len(STARTED) + 2 * len(LOG))
    assert not isinstance(hear(STARTED, LOG, LOG, conversation=conversation), ProtocolFault)
    fault = conversation.receive(LOG)
    assert fault == ProtocolFault(
        f"an execution's messages may have {len(STARTED) + 2 * len(LOG)} bytes in all, "
        "this is over",
        LOG,
    )
