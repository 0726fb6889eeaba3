"""Workers in sh and Python."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from smartlinkd.crews.worker import Worker

Begin = Callable[..., AbstractAsyncContextManager[Worker]]
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
