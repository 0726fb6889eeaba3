"""The unix socket of the owner's shell: `control.sock`, mode 0600, in the state directory.

Some commands must not be possible over HTTP, such as switching off the second factor of a lost
phone. The files' owner may give them here. A connection carries one request, a line of JSON
`{"command": "…", "arguments": {…}}`, and one response, a line of JSON with `ok`, and `error` if
`ok` is false.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import trio
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from smartlinkd.errors import BUG, Invalid, Refused
from smartlinkd.logs import LogContext, bind_log_contexts, new_request_id
from smartlinkd.supervision.calls import ACTOR_TIMEOUT_S, actor_deadline
from smartlinkd.validation import describe_errors

logger = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
MAX_REQUEST = 4096
"""Bytes."""
MAX_RESPONSE = 4 * 1024 * 1024
"""Bytes."""
MAX_CONNECTIONS = 8
DEADLINE_S = 10.0
"""For one request and its response."""

Response = dict[str, Any]


class Arguments(BaseModel):
    """The arguments of a command. An unknown one is refused, because it may be misspelt."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, defer_build=True
    )


@dataclass(frozen=True)
class Command:
    """A command: `run` checks the arguments against the model `takes`, and calls `do` with them."""

    do: Callable[..., Awaitable[Response | BaseModel]]
    takes: type[Arguments] = Arguments

    async def run(self, arguments: JsonValue = None) -> Response:
        """Check the arguments, carry the command out and return its result.

        Raises:
            Invalid: an argument is wrong. The text names it.
            Exception: what `do` raises.
        """
        try:
            checked = self.takes.model_validate({} if arguments is None else arguments)
        except ValidationError as error:
            fault = describe_errors(error, whole="arguments")
        else:
            answer = await self.do(**checked.model_dump())
            return answer if isinstance(answer, dict) else answer.model_dump(mode="json")
        raise Invalid(fault)  # out here it has no context, which would hold the values


Commands = Mapping[str, Command]


class NotRunning(Exception):  # noqa: N818 - it says how the daemon is
    """No daemon answers on the socket, or it is another user's. The text has the socket's path."""


class _NoLine(Exception):  # noqa: N818 - it says what came
    """The peer did not send one line of the permitted length."""


class ControlSocket:
    """Serves `commands`, by their names, on the socket in `directory`."""

    def __init__(
        self,
        directory: Path,
        commands: Commands,
        *,
        timeout_s: float = DEADLINE_S,
        actor_timeout_s: float = ACTOR_TIMEOUT_S,
    ) -> None:
        self._directory = directory
        self._commands = commands
        self._timeout_s = timeout_s
        self._actor_timeout_s = actor_timeout_s

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled, then remove the socket file."""
        # No other daemon can be listening: this one holds the state directory's lock.
        path = self._directory / SOCKET_NAME
        path.unlink(missing_ok=True)
        listening = trio.socket.from_stdlib_socket(_bind(self._directory))
        serve = partial(self._serve, trio.Semaphore(MAX_CONNECTIONS))
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(trio.serve_listeners, serve, [trio.SocketListener(listening)])
                task_status.started()
        finally:
            path.unlink(missing_ok=True)

    async def _serve(self, slots: trio.Semaphore, stream: trio.SocketStream) -> None:
        try:
            with (
                trio.move_on_after(self._timeout_s),
                bind_log_contexts((LogContext(request_id=new_request_id()),)),
            ):
                async with slots:
                    response = await self._respond(await _read_line(stream, MAX_REQUEST))
                    await stream.send_all(json.dumps(response).encode() + b"\n")
        except (trio.BrokenResourceError, _NoLine) as fault:
            logger.info("a control connection was cut off: %s", fault)

    async def _respond(self, request: bytes) -> Response:
        name, arguments = _parse(request)
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(sorted(self._commands))
            return {"ok": False, "error": f"command: {name!r} is not one of {known}"}
        logger.info("control command: %s", name)
        try:
            with actor_deadline(self._actor_timeout_s):
                return {"ok": True} | await command.run(arguments)
        except Refused as refusal:
            return {"ok": False, "error": str(refusal)}
        except Exception:  # as the HTTP API does: a bug in one command must not end others
            logger.exception("the control command %s failed", name)
            return {"ok": False, "error": BUG}


async def call(
    directory: Path,
    command: str,
    arguments: Mapping[str, JsonValue] | None = None,
    *,
    timeout_s: float = DEADLINE_S,
) -> Response:
    """Send a command to the daemon whose state is in `directory`, and return its response.

    The response's texts are not trusted: a caller that prints them makes them printable.

    Raises:
        NotRunning: no daemon answers.
        Invalid: the arguments are too long to be sent.
    """
    path = directory / SOCKET_NAME
    request = json.dumps({"command": command, "arguments": arguments or {}}).encode() + b"\n"
    if len(request) > MAX_REQUEST:
        raise Invalid(f"the arguments are too long: a question has at most {MAX_REQUEST} bytes")
    try:
        with trio.fail_after(timeout_s):
            with _short_path(directory) as address:
                stream = await trio.open_unix_socket(address)
            async with stream:
                await stream.send_all(request)
                response: Response = json.loads(await _read_line(stream, MAX_RESPONSE))
    except PermissionError:
        raise NotRunning(
            f"{path} belongs to another user; run this as root or as the daemon's user"
        ) from None
    except (OSError, trio.BrokenResourceError, _NoLine, ValueError, RecursionError):
        raise NotRunning(f"no daemon answers on {path}; is it running with this state?") from None
    except trio.TooSlowError:
        raise NotRunning(f"the daemon did not answer on {path} within {timeout_s:g} s") from None
    return response


def _bind(directory: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A mask and not a chmod afterwards: at no moment can other users connect.
    mask = os.umask(0o177)
    try:
        with _short_path(directory) as address:
            listener.bind(address)
        listener.listen(MAX_CONNECTIONS)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


@contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Yield a path to the socket by way of a descriptor: sun_path holds 107 bytes (unix(7))."""
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


def _parse(request: bytes) -> tuple[str, JsonValue]:
    """Return the command's name ("" if there is none), and its arguments unchecked."""
    try:
        parsed = json.loads(request)
    except (ValueError, RecursionError):  # RecursionError: brackets nested by the thousand
        parsed = None
    if not isinstance(parsed, dict):
        return "", None
    return str(parsed.get("command", "")), parsed.get("arguments")
