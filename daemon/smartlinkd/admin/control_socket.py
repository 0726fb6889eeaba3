"""The control socket: how the owner's shell talks to the running daemon.

Some things must not be possible over HTTP, however authenticated: switching off the second factor
of a lost phone, for one. They go over a unix socket of mode 0600 in the state directory, so that
who may do them is who owns the files. One connection is one question: a line of JSON
`{"command": "…"}`, and a line of JSON back, in the shape of the API's bodies.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeGuard, TypeVar

import trio
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from smartlinkd.accepting import PatientListener
from smartlinkd.errors import BUG, Invalid, Refused
from smartlinkd.logs import LogContext, bind_log_contexts, new_request_id
from smartlinkd.patience import patience
from smartlinkd.validation import describe_errors

logger = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
MAX_QUESTION = 4096
MAX_ANSWER = 4 * 1024 * 1024
CONNECTIONS = 8
DEADLINE = 10.0
"""Seconds for one question, its answer included."""

Answer = dict[str, Any]
A = TypeVar("A", bound="Arguments")


class Arguments(BaseModel):
    """What a command is told beside its name. An unknown one is refused: it may be misspelt."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True
    )


class NoArguments(Arguments):
    """For most commands."""


@dataclass(frozen=True)
class Command(Generic[A]):
    """What can be asked for: `do` is called with the arguments, once they are a `takes`."""

    do: Callable[[A], Awaitable[Answer]]
    takes: type[A]

    async def run(self, arguments: JsonValue = None) -> Answer:
        """Raises `Invalid`, which names the argument, or what `do` raises."""
        try:
            checked = self.takes.model_validate({} if arguments is None else arguments)
        except ValidationError as error:
            fault = describe_errors(error, whole="arguments")
        else:
            return await self.do(checked)
        raise Invalid(fault)  # out here it has no context, which would hold the values


def plain(do: Callable[[], Awaitable[Answer]]) -> Command[NoArguments]:
    """A command without arguments."""

    async def ignoring(_: NoArguments) -> Answer:
        return await do()

    return Command(ignoring, NoArguments)


Commands = Mapping[str, Command[Any]]


class NotRunning(Exception):  # noqa: N818 - it says how the daemon is
    """No daemon answers on the socket; the text says where it was looked for."""


class _NoLine(Exception):  # noqa: N818 - it says what came
    """What came is not one line of a bearable length."""


class Control:
    """Answers the commands it is given, by name, on the socket in `directory`."""

    def __init__(self, directory: Path, commands: Commands) -> None:
        self._directory = directory
        self._commands = commands

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled; the socket file goes with it."""
        # Nobody else can be listening: the state directory's lock was taken before this started.
        path = self._directory / SOCKET_NAME
        path.unlink(missing_ok=True)
        listening = trio.socket.from_stdlib_socket(_bind(self._directory))
        listener = PatientListener(trio.SocketListener(listening))
        hands = trio.Semaphore(CONNECTIONS)
        try:
            async with listener, trio.open_nursery() as nursery:
                task_status.started()
                while True:
                    await hands.acquire()
                    stream = await listener.accept()
                    nursery.start_soon(self._converse, stream, hands)
        finally:
            path.unlink(missing_ok=True)

    async def _converse(self, stream: trio.SocketStream, hands: trio.Semaphore) -> None:
        try:
            with (
                trio.move_on_after(DEADLINE),
                bind_log_contexts((LogContext(request_id=new_request_id()),)),
            ):
                async with stream:
                    answer = await self._answer(await _read_line(stream, MAX_QUESTION))
                    await stream.send_all(json.dumps(answer).encode() + b"\n")
        except (trio.BrokenResourceError, _NoLine) as fault:
            logger.info("a control connection was cut off: %s", fault)
        finally:
            hands.release()

    async def _answer(self, question: bytes) -> Answer:
        name, arguments = _read(question)
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(sorted(self._commands))
            return {"ok": False, "error": f"command: {name!r} is not one of {known}"}
        logger.info("control command: %s", name)
        try:
            with patience():
                return {"ok": True} | await command.run(arguments)
        except Refused as refusal:
            return {"ok": False, "error": str(refusal)}
        except Exception:  # as the facade does: a bug in one command is no reason to end others
            logger.exception("the control command %s failed", name)
            return {"ok": False, "error": BUG}


async def call(
    directory: Path, command: str, arguments: Mapping[str, JsonValue] | None = None
) -> Answer:
    """Ask the daemon whose state is in `directory`; its answer has `ok`, and `error` if not.

    Of its texts nothing is known: whoever shows them on a terminal makes them printable.
    Raises `NotRunning`, and `Invalid` for arguments that are too long to be sent.
    """
    path = directory / SOCKET_NAME
    question = json.dumps({"command": command, "arguments": arguments or {}}).encode() + b"\n"
    if len(question) > MAX_QUESTION:
        raise Invalid(f"the arguments are too long: a question has at most {MAX_QUESTION} bytes")
    try:
        with trio.fail_after(DEADLINE):
            with _short(directory) as address:
                stream = await trio.open_unix_socket(address)
            async with stream:
                await stream.send_all(question)
                answer = json.loads(await _read_line(stream, MAX_ANSWER))
    except PermissionError:
        raise NotRunning(
            f"{path} belongs to another user; run this as root or as the daemon's user"
        ) from None
    except (OSError, trio.BrokenResourceError, _NoLine, ValueError, RecursionError):
        raise NotRunning(f"no daemon answers on {path}; is it running with this state?") from None
    except trio.TooSlowError:
        raise NotRunning(f"the daemon did not answer on {path} within {DEADLINE:g} s") from None
    if not _is_answer(answer):
        raise NotRunning(f"what answers on {path} is no daemon of smartlinkd: its answer is none")
    return answer


def _is_answer(answer: object) -> TypeGuard[Answer]:
    if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
        return False
    return answer["ok"] or isinstance(answer.get("error"), str)


def _bind(directory: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mask, not a chmod afterwards: there is no moment at which others could connect.
    mask = os.umask(0o177)
    try:
        with _short(directory) as address:
            listener.bind(address)
        listener.listen(CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


@contextmanager
def _short(directory: Path) -> Iterator[str]:
    """The socket's address by way of a descriptor: one has room for 107 bytes, a path has 4096."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


async def _read_line(stream: trio.SocketStream, most: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        part = await stream.receive_some()
        if not part:
            raise _NoLine("it ended before its line did")
        line += part
        if len(line) > most:
            raise _NoLine(f"its line is over {most} bytes")
    return bytes(line)


def _read(question: bytes) -> tuple[str, JsonValue]:
    """The command's name, "" when there is none, and its arguments as they came."""
    try:
        asked = json.loads(question)
    except (ValueError, RecursionError):  # RecursionError: brackets nested by the thousand
        asked = None
    if not isinstance(asked, dict):
        return "", None
    return str(asked.get("command", "")), asked.get("arguments")
