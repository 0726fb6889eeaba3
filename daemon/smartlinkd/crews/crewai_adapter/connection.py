"""The connection to the daemon, and the budget of messages on it."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Mapping
from typing import Any

from .texts import (
    CALLS_UNTIL,
    MAX_LINE,
    MAX_WAITING_CALLS,
    NAME,
    OUTPUT,
    SHORT_OUTPUT,
    STEPS_UNTIL,
    TEXT,
    cut,
    encode,
    redact,
    to_json,
)


class ToolFailed(Exception):  # noqa: N818 - projects catch it by this name
    """A tool of smartlinkd failed. The text says why."""


def open_connection() -> DaemonConnection:
    """Return the connection that the daemon has opened for this process."""
    connection = socket.socket(fileno=int(os.environ.pop("SMARTLINKD_FD")))
    connection.set_inheritable(False)
    return DaemonConnection(connection)


class DaemonConnection:
    """The connection to the daemon. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self.lock = threading.RLock()
        """Held from a decision to its message: messages have the order of the decisions."""
        self.asking = threading.Lock()
        """Held from a question to a human to its answer: one question is open at a time."""
        self._connection = connection
        self._inputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._feedback: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._results: dict[str, queue.SimpleQueue[Any]] = {}
        self._calling = threading.Semaphore(MAX_WAITING_CALLS)
        self._messages = self._bytes = self._calls = 0
        self._started = self._ended = self._left_out = False
        threading.Thread(target=self._receive, name="smartlinkd", daemon=True).start()

    def inputs(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Wait for the crew's inputs and the names of the tools that it may use."""
        message = self._inputs.get()
        return message["inputs"], tuple(message["tools"])

    def start(self, total_tasks: int | None = None) -> None:
        """Send `started`, unless it was sent."""
        with self.lock:
            if not self._started:
                self._started = True
                self.send("started", total_tasks=total_tasks)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message, after `started` and before the last one; later ones are dropped."""
        with self.lock:
            self.start()
            if self._ended:
                return
            line = encode({"type": kind, **fields})
            self._messages += 1
            self._bytes += len(line)
            try:
                self._connection.sendall(line)
            except OSError:
                os._exit(1)  # the daemon has gone

    def send_if_room(self, kind: str, **fields: Any) -> None:
        """Send a message that may be left out, if there is room for it."""
        with self.lock:
            if self._has_room(STEPS_UNTIL):
                self.send(kind, **fields)
            elif not self._left_out:
                self._left_out = True
                text = "this execution has said so much that further steps are left out"
                self.send("log", level="warning", text=text)

    def log(self, level: str, text: str) -> None:
        """Send a log message without secrets, if there is room."""
        self.send_if_room("log", level=level, text=cut(redact(text, os.environ), TEXT))

    def output(self, text: str) -> str:
        """Return a task's output, cut to the room that there is."""
        return cut(text, self.room())

    def room(self) -> int:
        """Return the bytes that a text about a task may have."""
        return OUTPUT if self._has_room(CALLS_UNTIL) else SHORT_OUTPUT

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Have the daemon run a tool, and wait for the result. Raises `ToolFailed`."""
        wanted = to_json(arguments)
        if not isinstance(wanted, dict) or len(encode(wanted)) > OUTPUT:
            raise ToolFailed(f"{tool}: its arguments are no JSON object, or over {OUTPUT} bytes")
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._calling:
            with self.lock:
                if self._ended or not self._has_room(CALLS_UNTIL):
                    raise ToolFailed(f"{tool}: this execution has had all the calls it may have")
                self._calls += 1
                call_id = str(self._calls)
                self._results[call_id] = answer
                self.send("tool_call", call_id=call_id, tool=tool, arguments=wanted)
            message = answer.get()
        if message["error"] is not None:
            raise ToolFailed(message["error"])
        return message["result"]

    def ask(self, task_id: str, prompt: str, output: str) -> tuple[bool, str]:
        """Ask a human about an open task, and wait. Return the approval and the feedback.

        The caller holds `asking`.
        """
        text = cut(prompt, TEXT)
        self.send("human_input", task_id=task_id, prompt=text, output=self.output(output))
        message = self._feedback.get()
        return message["approved"], message["feedback"]

    def result(self, output: str, output_json: Any, token_usage: Mapping[str, int] | None) -> None:
        """Send the result."""
        said = {"output": output, "output_json": output_json, "token_usage": token_usage}
        if len(encode(said)) > MAX_LINE - NAME and output_json is not None:
            self.log("warning", "output_json is left out: with it the result would be too long")
            said["output_json"] = None
        said["output"] = cut(output, MAX_LINE - NAME)
        self._finish("result", **said)

    def fail(self, error: str) -> None:
        """Send `failed`."""
        self._finish("failed", error=error)

    def _finish(self, kind: str, **fields: Any) -> None:
        with self.lock:
            self.send(kind, **fields)
            self._ended = True

    def _has_room(self, until: tuple[int, int]) -> bool:
        messages, size = until
        return self._messages < messages and self._bytes < size

    def _receive(self) -> None:
        try:
            for line in self._connection.makefile("rb"):
                message = json.loads(line)
                match message["type"]:
                    case "inputs":
                        self._inputs.put(message)
                    case "tool_result":
                        self._results.pop(message["call_id"]).put(message)
                    case "human_feedback":
                        self._feedback.put(message)
                    case "stop":
                        os._exit(0)  # no cleaning up: there is no telling how long that takes
        finally:
            with self.lock:  # the daemon closes its end after the last message
                if not self._ended:
                    os._exit(1)
