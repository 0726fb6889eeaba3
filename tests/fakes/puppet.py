"""A real worker process that runs its input `script`: the steps of `puppets.py`, and more.

`given`, `echo` and `output` have no fake. It runs as `python -I -S puppet.py`, so it imports
nothing of this project.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any

MESSAGES: dict[str, Any] = {
    "started": lambda _: {"type": "started"},
    "task": lambda x: {"type": "task_started", "task_id": x, "name": f"task {x}"},
    "done": lambda x: {"type": "task_completed", "task_id": x, "output": f"output of {x}"},
    "ask": lambda x: {"type": "human_input", "task_id": x, "prompt": "good?"},
    "note": lambda x: {"type": "step", "thought": x},
    "log": lambda x: {"type": "log", "text": x},
    "call": lambda x: {"type": "tool_call", "call_id": x, "tool": x, "arguments": {}},
    "result": lambda x: {"type": "result", "output": x},
    "failed": lambda x: {"type": "failed", "error": x},
}
"""Messages of a worker, by the first word of their step."""
FLOOD = "x" * 60_000
ENDLESS = "y" * (1024 * 1024 + 1)


def main() -> None:
    for step in GIVEN["inputs"].get("script", ["started", "result done"]):
        if isinstance(step, str):
            word, _, rest = step.partition(" ")
            run_step(word, rest)
        else:
            send_message(step)


def receive() -> dict[str, Any]:
    message: dict[str, Any] = json.loads(READER.readline() or '{"type": "stop"}')
    return message


def send(text: str) -> None:
    CONNECTION.sendall(text.encode())


def send_message(message: dict[str, Any]) -> None:
    send(json.dumps(message) + "\n")


def run_step(word: str, rest: str) -> None:  # noqa: PLR0912 - a branch a step
    if word in MESSAGES:
        return send_message(MESSAGES[word](rest))
    match word:
        case "given":
            send_message(MESSAGES["log"](json.dumps(GIVEN)))
        case "hear" | "echo":
            message = receive()
            if message["type"] == "stop":
                sys.exit("stopped")
            if word == "echo":
                send_message(MESSAGES["log"](json.dumps(message)))
        case "raw":
            send(f"{rest}\n")
        case "part":
            send(rest)
        case "endless":
            send(ENDLESS)
        case "flood":
            for _ in range(int(rest)):
                send_message({"type": "log", "text": FLOOD})
        case "print":
            os.write(1, b"x" * int(rest))
        case "output":
            print(rest, flush=True)
        case "words":
            print(rest, file=sys.stderr, flush=True)
        case "sleep":
            time.sleep(float(rest))
        case "hang":
            while True:
                signal.pause()
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "fork" | "stray":
            fork_child(stray=word == "stray")
        case "close":
            READER.close()
            CONNECTION.close()
        case "fill":
            hoard = b"x" * (512 * 2**20)
            signal.pause()
            del hoard
        case "signal":
            os.kill(os.getpid(), int(rest))
        case "exit":
            sys.exit(int(rest))
        case _:
            raise ValueError(word)
    return None


def fork_child(*, stray: bool) -> None:
    ready, done = os.pipe()
    if os.fork() == 0:
        if stray:
            os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(done)
        while True:
            signal.pause()
    os.close(done)
    os.read(ready, 1)  # the child has set up its signals
    os.close(ready)


if __name__ == "__main__":
    CONNECTION = socket.socket(fileno=int(os.environ["SMARTLINKD_FD"]))
    READER = CONNECTION.makefile("r", encoding="utf-8")
    GIVEN = receive()
    try:
        main()
    except (BrokenPipeError, ConnectionResetError) as fault:
        sys.exit(f"{type(fault).__name__}: {fault}")
