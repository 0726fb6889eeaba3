"""docs/crew-workers.md: its workers do what it says, as they stand there; its tables are true."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import get_args

import pytest
import trio

import smartlinkd
from smartlinkd.crews.outcome import ExitedWithoutResult
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
from smartlinkd.crews.worker import Stopped, Worker

Begin = Callable[..., AbstractAsyncContextManager[Worker]]

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


@pytest.mark.parametrize("language", ["python", "sh"])
def test_an_example_is_short(language: str, example: Callable[[str], Path]) -> None:
    lines = example(language).read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 20


@pytest.mark.parametrize(
    ("approved", "output"), [(True, "Hello Chi"), (False, "Hello Chi, and welcome")]
)
async def test_the_worker_in_python(
    begin: Begin, example: Callable[[str], Path], approved: bool, output: str
) -> None:
    command = (sys.executable, "-I", str(example("python")))
    async with begin(*command, inputs=Inputs(inputs={"name": "Chi"})) as worker:
        with trio.fail_after(10):
            said = []
            async for message in worker.messages:
                said.append(message)
                if isinstance(message, HumanInput):
                    await worker.send(
                        HumanFeedback(task_id=message.task_id, feedback="", approved=approved)
                    )
            assert said == [
                Started(total_tasks=1),
                TaskStarted(task_id="greet", name="greet", agent="greeter"),
                HumanInput(task_id="greet", prompt="Is this friendly enough?", output="Hello Chi"),
                TaskCompleted(task_id="greet", output=output),
            ]
            assert await worker.exit_reason() == Result(output=output)


async def test_the_worker_in_python_is_stopped_while_it_asks(
    begin: Begin, example: Callable[[str], Path]
) -> None:
    command = (sys.executable, "-I", str(example("python")))
    async with begin(*command, inputs=Inputs(inputs={"name": "Chi"})) as worker:
        async for message in worker.messages:
            if isinstance(message, HumanInput):
                break
        assert await worker.stop() == Stopped.WITHOUT_SIGNAL
        assert await worker.exit_reason() == ExitedWithoutResult(1, "stopped")


async def test_the_worker_in_sh(begin: Begin, example: Callable[[str], Path]) -> None:
    inputs = Inputs(inputs={"lang": "vi", "text": "xin chào các bạn"})
    async with begin("/bin/sh", str(example("sh")), inputs=inputs) as worker:
        with trio.fail_after(10):
            assert [message async for message in worker.messages] == [
                Started(total_tasks=1),
                TaskStarted(task_id="count", agent="counter"),
                TaskCompleted(task_id="count", output="4"),
            ]
            assert await worker.exit_reason() == Result(output="4 words", output_json={"words": 4})


async def test_the_worker_in_sh_refuses_what_it_cannot_read(
    begin: Begin, example: Callable[[str], Path]
) -> None:
    inputs = Inputs(inputs={"text": 'with "quotes"'})
    async with begin("/bin/sh", str(example("sh")), inputs=inputs) as worker:
        with trio.fail_after(10):
            assert await worker.exit_reason() == Failed(
                error="text: give one without quotes and line breaks"
            )


@pytest.mark.parametrize(
    "model", [*get_args(FromWorker), *get_args(ToWorker)], ids=lambda model: model.__name__
)
def test_each_message_is_there_with_its_fields(model: type[Message]) -> None:
    fields = set(model.model_fields) - {"type"}
    name = model.model_fields["type"].default
    row, *_ = re.findall(rf"^\| `{name}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert fields <= set(re.findall(r"`(\w+)`", row))


@pytest.mark.parametrize(
    "bound", [MAX_LINE, MAX_MESSAGES, MAX_ID, MAX_NAME, MAX_TEXT, MAX_ERROR, MAX_WAITING_CALLS]
)
def test_each_bound_is_there(bound: int) -> None:
    assert re.search(rf"\b{bound:,}\b".replace(",", " "), PAGE)
