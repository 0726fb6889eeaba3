"""Workers in sh and Python, and their runs to the end."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from smartlinkd.crews.outcome import ExitReason
from smartlinkd.crews.protocol import FromWorker, HumanFeedback, HumanInput, ToolResult
from smartlinkd.crews.worker import Worker

Begin = Callable[..., AbstractAsyncContextManager[Worker]]
Answer = Callable[[FromWorker], ToolResult | HumanFeedback | None]
"""The answer to a message; None if it asks for none."""
Until = Callable[[Callable[[], bool]], Awaitable[None]]
SHELL = """
say() { printf '%s\\n' "$1" >&3; }
done='{"type":"result","output":"done"}'
say '{"type":"started"}'
"""
PYTHON = """
import json, os, socket, time
line = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"])).makefile("rwb")
def say(type, **fields):
    line.write(json.dumps({"type": type, **fields}).encode() + b"\\n")
    line.flush()
def hear():
    return json.loads(line.readline())
"""


def shell(script: str) -> tuple[str, ...]:
    """A worker that says `started` and runs the script."""
    return ("/bin/sh", "-c", SHELL + script)


def python(program: str) -> tuple[str, ...]:
    """A worker that can `say` and `hear`."""
    return (sys.executable, "-I", "-S", "-c", PYTHON + program)


def questions(*answered: tuple[str, bool]) -> Answer:
    """Return answers to the questions to a human, in turn."""
    left = iter(answered)

    def answer(said: FromWorker) -> HumanFeedback | None:
        if not isinstance(said, HumanInput):
            return None
        feedback, approved = next(left)
        return HumanFeedback(task_id=said.task_id, feedback=feedback, approved=approved)

    return answer


async def whole(
    start: AbstractAsyncContextManager[Worker], answer: Answer = lambda _: None
) -> tuple[list[FromWorker], ExitReason]:
    """Run a worker and answer its requests. Return its messages and its end."""
    async with start as worker:
        return await to_end(worker, answer)


async def to_end(
    worker: Worker, answer: Answer = lambda _: None
) -> tuple[list[FromWorker], ExitReason]:
    """Answer the requests of a running worker. Return its messages and its end."""
    messages = []
    async for message in worker.channel:
        messages.append(message)
        if (told := answer(message)) is not None:
            await worker.channel.send(told)
    end = await worker.exit_reason()
    await worker.drain()
    return messages, end
