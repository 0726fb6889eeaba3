"""Programs that are workers, as lists of steps: what a played process makes of one.

A step is a text, a word and what belongs to it, or an object, which is said to the daemon as it is.
The same list can be the input `script` of a real execution: `puppet.py` does the same in a process
of its own, and the contract tests in this folder hold the two together.

| step | what is done |
|---|---|
| `started`, `task X`, `done X`, `ask X` | said |
| `note X`, `log TEXT`, `result TEXT`, `failed TEXT` | said |
| `call X` | the tool X is called, as the call X, without arguments |
| `hear` | the next message is waited for; at `stop`, or at the end, it exits with 1 |
| `stopped` | `stop` is waited for, and it exits with 0 |
| `raw TEXT`, `part TEXT` | said with a newline, without one |
| `endless` | more than a line may have, without a newline |
| `flood N` | N messages of 60 000 characters |
| `print N`, `words TEXT` | N bytes to standard output, a line to standard error |
| `sleep S`, `hang` | nothing, for so long or for ever |
| `deaf` | from now on SIGTERM is ignored |
| `fork`, `stray` | a child that holds all it has open, in its group or in its own session |
| `file` | a file is left in its folder |
| `close` | its connection is closed |
| `fill` | more memory than it may have is used |
| `signal N`, `exit N` | so it ends, or stops |
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio

from tests.fakes.puppet import ENDLESS, FLOOD, SAID

Step = str | dict[str, Any]


class _Exit(BaseException):
    """The program ends by itself."""

    def __init__(self, code: int, words: str = "") -> None:
        self.code = code
        self.words = words


class Fork:
    """A child: it holds what its parent had open, ignores SIGTERM and goes with SIGKILL alone."""

    def __init__(self, descriptors: Sequence[int], *, stray: bool) -> None:
        self.stray = stray
        self._held = [os.dup(each) for each in descriptors]

    def kill(self) -> None:
        while self._held:
            os.close(self._held.pop())


class Puppet:
    """A played process. `waitstatus` is what its parent is told; None while it lives."""

    def __init__(self, pid: int, execution: str, folder: Path, descriptors: Sequence[int]) -> None:
        """`descriptors` are its connection, standard output and standard error; it owns them."""
        self.pid = pid
        self.execution = execution
        self.waitstatus: int | None = None
        self.forks: list[Fork] = []
        self.stopped = False
        self.told = False
        """To do something else than its script."""
        self.ended = trio.Event()
        self.step: Step = ""
        self.news = trio.Event()
        """It does something else, or something was done to it."""
        self._folder = folder
        self._descriptors = list(descriptors)
        self._line: trio.socket.SocketType | None = None
        self._heard = bytearray()
        self._ignored: set[int] = set()
        self._pending: list[int] = []
        self._life = trio.CancelScope()
        self._doing = trio.CancelScope()
        self._orders: list[Step] | None = None

    # What can happen to it

    def signal(self, number: int) -> None:
        """As the kernel does it."""
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
        self._tell()

    def do(self, *steps: Step) -> None:
        """Leave what it is doing, and do this from now on: as if its script had come to here."""
        self._orders = list(steps)
        self.told = True
        self._doing.cancel()

    async def until(self, step: Step) -> None:
        """Wait until it is doing this. Raises LookupError when it ends before."""
        while self.step != step:
            if self.waitstatus is not None:
                raise LookupError(f"it has ended with {self.waitstatus} before it did {step}")
            await self.news.wait()

    # Its life

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
        """The kernel closes what it has open; what a child holds stays so."""
        self._close_line()
        for each in self._descriptors:
            if each >= 0:
                os.close(each)
        self._descriptors = []

    def _close_line(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line, self._descriptors[0] = None, -1

    def _end(self, waitstatus: int) -> None:
        if self.waitstatus is None:
            self.waitstatus = waitstatus
            self._life.cancel()  # before anything is closed that it waits for
            self._close()
            self.ended.set()
            self._tell()

    async def _interpret(self) -> None:
        self._line = trio.socket.from_stdlib_socket(socket.socket(fileno=self._descriptors[0]))
        steps: list[Step] = []
        with trio.CancelScope() as self._doing:
            given = await self._hear()
            steps = list(given["inputs"].get("script", ["started", "result done"]))
        while True:
            if self._orders is not None:
                steps, self._orders = self._orders, None
            if not steps:
                return
            with trio.CancelScope() as self._doing:
                await self._awake()
                self.step = steps.pop(0)
                self._tell()
                await self._do(self.step)

    async def _do(self, step: Step) -> None:  # noqa: PLR0912 - one a step
        if not isinstance(step, str):
            return await self._say(step)
        word, _, rest = step.partition(" ")
        if word in SAID:
            return await self._say(SAID[word](rest))
        match word:
            case "hear":
                if (await self._hear())["type"] == "stop":
                    raise _Exit(1, "stopped")
            case "stopped":
                while (await self._hear())["type"] != "stop":
                    pass
                raise _Exit(0)
            case "raw":
                await self._send(f"{rest}\n".encode())
            case "part":
                await self._send(rest.encode())
            case "endless":
                await self._send(ENDLESS.encode())
            case "flood":
                for _ in range(int(rest)):
                    await self._say({"type": "log", "text": FLOOD})
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
            case "file":
                (self._folder / "left").mkdir()
                (self._folder / "left" / "behind").touch()
            case "close":
                self._close_line()
            case "signal":
                self.signal(int(rest))
                await self._awake()
            case "exit":
                raise _Exit(int(rest))
            case _:
                raise ValueError(word)
        return None

    # Its means

    async def _say(self, message: dict[str, Any]) -> None:
        await self._send(json.dumps(message).encode() + b"\n")

    async def _send(self, data: bytes) -> None:
        await self._awake()
        if self._line is None:
            raise BrokenPipeError(32, os.strerror(32))
        left = memoryview(data)
        while left:
            left = left[await self._line.send(left) :]
            await self._awake()

    async def _hear(self) -> dict[str, Any]:
        """The next message; at the end it is as if it was told to stop."""
        while (end := self._heard.find(b"\n")) < 0:
            if self._line is None:
                return {"type": "stop"}
            received = await self._line.recv(65536)
            await self._awake()
            if not received:
                return {"type": "stop"}
            self._heard += received
        line = bytes(self._heard[:end])
        del self._heard[: end + 1]
        message: dict[str, Any] = json.loads(line)
        return message

    async def _write(self, number: int, data: bytes) -> None:
        """To standard output (1) or error (2); a full pipe is waited for."""
        async with trio.lowlevel.FdStream(os.dup(self._descriptors[number])) as stream:
            await stream.send_all(data)

    async def _awake(self) -> None:
        """Go on, when it is not stopped."""
        await trio.lowlevel.checkpoint()
        while self.stopped:
            await self.news.wait()

    def _tell(self) -> None:
        self.news.set()
        self.news = trio.Event()
