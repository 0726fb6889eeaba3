"""Fake worker processes that run a script, a list of steps.

A real execution's input `script` can be the same list: `puppet.py` runs it in a real process, and
the contract tests in this folder compare the two.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

import trio

from tests.fakes.puppet import ENDLESS, FLOOD, MESSAGES

Step = str | dict[str, Any]
"""A word with its argument, or a message that is sent to the daemon as it is.

| step | action |
|---|---|
| `started`, `task X`, `done X`, `ask X` | send this message |
| `note X`, `log TEXT`, `result TEXT`, `failed TEXT` | send this message |
| `call X` | call the tool X without arguments; the call's id is X |
| `hear` | receive a message; at `stop` or end of file exit with 1 |
| `raw TEXT`, `part TEXT` | send the text with a newline, without one |
| `endless` | send more than the longest line, without a newline |
| `flood N` | send N messages of 60 000 characters |
| `print N`, `words TEXT` | write N bytes to standard output, a line to standard error |
| `sleep S`, `hang` | do nothing for S seconds, for ever |
| `deaf` | ignore SIGTERM from now on |
| `fork`, `stray` | fork a child that keeps all descriptors, in the same session, in a new one |
| `close` | close the connection to the daemon |
| `fill` | use more memory than the limit |
| `signal N`, `exit N` | send itself the signal, exit with the code |
"""


class _Exit(BaseException):
    """The program exits by itself with this code; `words` go to standard error."""

    def __init__(self, code: int, words: str = "") -> None:
        self.code = code
        self.words = words


class Fork:
    """A forked child: it keeps its parent's descriptors, ignores SIGTERM and ends at SIGKILL."""

    def __init__(self, descriptors: Sequence[int], *, stray: bool) -> None:
        self.stray = stray
        self._held = [os.dup(each) for each in descriptors]

    def kill(self) -> None:
        while self._held:
            os.close(self._held.pop())


class FakeWorker:
    """A fake worker process. `waitstatus` is as of waitpid(2); None while it runs."""

    def __init__(self, pid: int, execution: str, descriptors: Sequence[int]) -> None:
        """`descriptors` are connection, standard output and error; the worker owns them."""
        self.pid = pid
        self.execution = execution
        self.waitstatus: int | None = None
        self.forks: list[Fork] = []
        self.stopped = False
        self.is_redirected = False
        """True once `run_instead()` has replaced the script."""
        self.ended = trio.Event()
        self.step: Step = ""
        self.changed = trio.Event()
        """Set, and replaced, at each new step and each signal."""
        self._descriptors = list(descriptors)
        self._socket: trio.socket.SocketType | None = None
        self._received = bytearray()
        self._ignored: set[int] = set()
        self._pending: list[int] = []
        self._life = trio.CancelScope()
        self._doing = trio.CancelScope()
        self._replacement: list[Step] | None = None

    # Faults

    def signal(self, number: int) -> None:
        """Deliver a signal as the kernel does."""
        if number == signal.SIGSTOP:
            self.stopped = True
        elif number == signal.SIGKILL:
            self._end(number)
        elif number == signal.SIGCONT:
            self.stopped = False
            pending, self._pending = self._pending, []
            for each in pending:
                self.signal(each)
        elif self.stopped:
            self._pending.append(number)
        elif number not in self._ignored:
            self._end(number)
        self._notify()

    def run_instead(self, *steps: Step) -> None:
        """Interrupt the current step and run these steps instead of the rest of the script."""
        self._replacement = list(steps)
        self.is_redirected = True
        self._doing.cancel()

    async def wait_step(self, step: Step) -> None:
        """Wait until the worker runs this step. Raises LookupError if it ends before."""
        while self.step != step:
            if self.waitstatus is not None:
                raise LookupError(f"the worker ended with {self.waitstatus} before the step {step}")
            await self.changed.wait()

    # Process

    async def run(self) -> None:
        code, words = 0, ""
        with self._life:
            try:
                await self._interpret()
            except _Exit as leaves:
                code, words = leaves.code, leaves.words
            except (BrokenPipeError, ConnectionResetError) as fault:
                code, words = 1, f"{type(fault).__name__}: {fault}"
            if words:
                await self._write(2, words.encode() + b"\n")
        self._end(code << 8)

    def _close(self) -> None:
        """Close all descriptors, as the kernel does; forked children keep their duplicates."""
        self._close_socket()
        for each in self._descriptors:
            if each >= 0:
                os.close(each)
        self._descriptors = []

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket, self._descriptors[0] = None, -1

    def _end(self, waitstatus: int) -> None:
        if self.waitstatus is None:
            self.waitstatus = waitstatus
            self._life.cancel()  # before the descriptors that the task waits for are closed
            self._close()
            self.ended.set()
            self._notify()

    async def _interpret(self) -> None:
        self._socket = trio.socket.from_stdlib_socket(socket.socket(fileno=self._descriptors[0]))
        steps: list[Step] = []
        with trio.CancelScope() as self._doing:
            inputs = await self._receive()
            steps = list(inputs["inputs"].get("script", ["started", "result done"]))
        while True:
            if self._replacement is not None:
                steps, self._replacement = self._replacement, None
            if not steps:
                return
            with trio.CancelScope() as self._doing:
                await self._wait_continued()
                self.step = steps.pop(0)
                self._notify()
                await self._run_step(self.step)

    async def _run_step(self, step: Step) -> None:  # noqa: PLR0912 - a branch a step
        if not isinstance(step, str):
            return await self._send_message(step)
        word, _, rest = step.partition(" ")
        if word in MESSAGES:
            return await self._send_message(MESSAGES[word](rest))
        match word:
            case "hear":
                if (await self._receive())["type"] == "stop":
                    raise _Exit(1, "stopped")
            case "raw":
                await self._send(f"{rest}\n".encode())
            case "part":
                await self._send(rest.encode())
            case "endless":
                await self._send(ENDLESS.encode())
            case "flood":
                for _ in range(int(rest)):
                    await self._send_message({"type": "log", "text": FLOOD})
            case "print":
                await self._write(1, b"x" * int(rest))
            case "words":
                await self._write(2, f"{rest}\n".encode())
            case "sleep":
                await trio.sleep(float(rest))
            case "hang" | "fill":
                await trio.sleep_forever()
            case "deaf":
                self._ignored.add(signal.SIGTERM)
            case "fork" | "stray":
                held = [each for each in self._descriptors if each >= 0]
                self.forks.append(Fork(held, stray=word == "stray"))
            case "close":
                self._close_socket()
            case "signal":
                self.signal(int(rest))
                await self._wait_continued()
            case "exit":
                raise _Exit(int(rest))
            case _:
                raise ValueError(word)
        return None

    # Descriptors

    async def _send_message(self, message: dict[str, Any]) -> None:
        await self._send(json.dumps(message).encode() + b"\n")

    async def _send(self, data: bytes) -> None:
        await self._wait_continued()
        if self._socket is None:
            raise BrokenPipeError(32, os.strerror(32))
        left = memoryview(data)
        while left:
            left = left[await self._socket.send(left) :]
            await self._wait_continued()

    async def _receive(self) -> dict[str, Any]:
        """Return the next message; at end of file a `stop` message."""
        while (end := self._received.find(b"\n")) < 0:
            if self._socket is None:
                return {"type": "stop"}
            received = await self._socket.recv(65536)
            await self._wait_continued()
            if not received:
                return {"type": "stop"}
            self._received += received
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        message: dict[str, Any] = json.loads(line)
        return message

    async def _write(self, number: int, data: bytes) -> None:
        """Write to standard output (1) or error (2), and wait while the pipe is full."""
        async with trio.lowlevel.FdStream(os.dup(self._descriptors[number])) as stream:
            await stream.send_all(data)

    async def _wait_continued(self) -> None:
        """Return once the process is not stopped."""
        await trio.lowlevel.checkpoint()
        while self.stopped:
            await self.changed.wait()

    def _notify(self) -> None:
        self.changed.set()
        self.changed = trio.Event()
