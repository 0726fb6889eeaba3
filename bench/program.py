"""The trivial programs that crews and their peers run, and a function that runs one as a process.

They speak the workers' protocol and do nothing else. Most workers are Python, so one is; its result
is its start by the monotonic clock that all processes share, so no polling is measured. The other
is sh, whose own cost is close to none.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Final

_IN_PYTHON: Final = """
import time
began = time.monotonic()
import json, os, socket
line = socket.socket(fileno=3)
heard, said = line.makefile("r"), line.makefile("w")
inputs = json.loads(heard.readline())["inputs"]
for message in ({"type": "started", "total_tasks": 1}, {"type": "result", "output": repr(began)}):
    print(json.dumps(message), file=said, flush=True)
"""
_IN_SH: Final = r"""
IFS= read -r inputs <&3
printf '{"type": "started", "total_tasks": 1}\n{"type": "result", "output": "done"}\n' >&3
"""
PYTHON: Final = [sys.executable, "-I", "-c", _IN_PYTHON]
SH: Final = ["/bin/sh", "-c", _IN_SH]
INPUTS: Final = b'{"type": "inputs", "version": 1, "inputs": {"topic": "bench"}, "tools": []}\n'


def run_once(words: list[str]) -> str:
    """Run the program to its end and return its result."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            channel = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)]
            pid = os.posix_spawn(words[0], words, {"PATH": os.defpath}, file_actions=channel)
        ours.sendall(INPUTS)
        said = ours.makefile("r", encoding="utf-8").read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        raise RuntimeError(f"the program ended with {code}: {said}")
    return result_of(said)


def result_of(said: str) -> str:
    """Return the result from all the program's output."""
    return str(json.loads(said.splitlines()[-1])["output"])
