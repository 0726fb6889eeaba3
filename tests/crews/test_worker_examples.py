"""docs/crew-workers.md: its workers do what it says, as they stand there; its tables are true."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import trio

import smartlinkd
from smartlinkd.crews.outcome import ExitReason
from smartlinkd.crews.protocol import (
    MAX_ERROR,
    MAX_ID,
    MAX_LINE,
    MAX_MESSAGES,
    MAX_NAME,
    MAX_TEXT,
    MAX_WAITING_CALLS,
    Failed,
    FromWorker,
    HumanFeedback,
    HumanInput,
    Inputs,
    Message,
    Result,
    Started,
    TaskCompleted,
    TaskStarted,
    ToWorker,
)
from tests.crews.scripts import Begin

pytestmark = pytest.mark.usefixtures("nothing_left")
PAGE = (Path(smartlinkd.__file__).parents[2] / "docs/crew-workers.md").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path: Path) -> Callable[[str], Path]:
    """The one program of that language in the page, as a file."""

    def extract(language: str) -> Path:
        [program] = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
        file = tmp_path / "worker"
        file.write_text(program)
        return file

    return extract


@pytest.mark.parametrize(
    ("approved", "output"), [(True, "Hello Chi"), (False, "Hello Chi, and welcome")]
)
async def test_documented_python_worker_greets_and_asks(
    begin: Begin, example: Callable[[str], Path], approved: bool, output: str
) -> None:
    command = (sys.executable, "-I", str(example("python")))
    async with begin(*command, inputs=Inputs(inputs={"name": "Chi"})) as worker:
        with trio.fail_after(10):
            said = []
            async for message in worker.channel:
                said.append(message)
                if isinstance(message, HumanInput):
                    await worker.channel.send(
                        HumanFeedback(task_id=message.task_id, feedback="", approved=approved)
                    )
            assert said == [
                Started(total_tasks=1),
                TaskStarted(task_id="greet", name="greet", agent="greeter"),
                HumanInput(task_id="greet", prompt="Is this friendly enough?", output="Hello Chi"),
                TaskCompleted(task_id="greet", output=output),
            ]
            assert await worker.exit_reason() == Result(output=output)


@pytest.mark.parametrize(
    ("text", "said", "end"),
    [
        (
            "xin chào các bạn",
            [
                Started(total_tasks=1),
                TaskStarted(task_id="count", agent="counter"),
                TaskCompleted(task_id="count", output="4"),
            ],
            Result(output="4 words", output_json={"words": 4}),
        ),
        (
            'with "quotes"',
            [Started(total_tasks=1)],
            Failed(error="text: give one without quotes and line breaks"),
        ),
    ],
    ids=["words", "quotes"],
)
async def test_documented_sh_worker_counts_words_and_refuses_quotes(
    begin: Begin, example: Callable[[str], Path], text: str, said: list[FromWorker], end: ExitReason
) -> None:
    inputs = Inputs(inputs={"lang": "vi", "text": text})
    async with begin("/bin/sh", str(example("sh")), inputs=inputs) as worker:
        with trio.fail_after(10):
            assert [message async for message in worker.channel] == said
            assert await worker.exit_reason() == end


@pytest.mark.parametrize(
    "model", [*get_args(FromWorker), *get_args(ToWorker)], ids=lambda model: model.__name__
)
def test_documented_messages_have_all_fields(model: type[Message]) -> None:
    fields = set(model.model_fields) - {"type"}
    name = model.model_fields["type"].default
    row, *_ = re.findall(rf"^\| `{name}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert fields <= set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize(
    "bound", [MAX_LINE, MAX_MESSAGES, MAX_ID, MAX_NAME, MAX_TEXT, MAX_ERROR, MAX_WAITING_CALLS]
)
def test_documented_bounds_are_the_protocols(bound: int) -> None:
    assert re.search(rf"\b{bound:,}\b".replace(",", " "), PAGE)
