"""A worker at work: what it is given, what it says and is told, and what holds it up."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from daemon.crews.ends import ExitedWithoutResult
from daemon.crews.protocol import (
    MAX_LINE,
    HumanFeedback,
    HumanInput,
    Inputs,
    Log,
    Result,
    Started,
    TaskStarted,
    ToolCall,
    ToolResult,
)
from daemon.crews.worker import CannotStart, Worker

Until = Callable[[Callable[[], bool]], Awaitable[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")

SAY = """say() { printf '%s\\n' "$1" >&3; }
say '{"type":"started"}'
"""
RESULT = """say '{"type":"result","output":"done"}'
"""
PYTHON = """
import json, os, socket, sys, time
line = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"])).makefile("rwb")
def say(type, **fields):
    line.write(json.dumps({"type": type, **fields}).encode() + b"\\n")
    line.flush()
def hear():
    return json.loads(line.readline())
"""


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", SAY + script)


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", PYTHON + program)


async def said(worker: Worker) -> list[object]:
    with trio.fail_after(10):
        return [message async for message in worker.messages]


# What it is given


async def test_it_gets_its_inputs_first(begin) -> None:  # type: ignore[no-untyped-def]
    inputs = Inputs(inputs={"topic": "Chào"}, tools=("convert_links",))
    async with begin(*shell("read -r line <&3; echo $line" + "\n" + RESULT), inputs=inputs) as worker:
        assert await worker.end() == Result(output="done")
        assert json.loads(worker.stdout_tail) == {
            "type": "inputs",
            "version": 1,
            "inputs": {"topic": "Chào"},
            "tools": ["convert_links"],
        }
