"""The control socket over a real one: access, answers, and bad clients."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from pydantic import Field, JsonValue
from trio.testing import wait_all_tasks_blocked

from smartlinkd.admin.control_socket import (
    MAX_CONNECTIONS,
    MAX_REQUEST,
    SOCKET_NAME,
    Arguments,
    Command,
    Commands,
    ControlSocket,
    NotRunning,
    Response,
    call,
)
from smartlinkd.errors import Invalid

PATIENCE = 5.0  # seconds; a longer wait is a hang
NOBODY = 65534


class Order(Arguments):
    """The arguments of the command `order`."""

    dish: str
    spoons: int = Field(default=1, le=4)


class Handlers:
    """The handlers of the commands, and what they have done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.waiting = 0
        self.waits = trio.Event()
        self.may_end = trio.Event()

    async def greet(self) -> Response:
        self.done.append("greet")
        return {"message": "good day"}

    async def wait(self) -> Response:
        self.waiting += 1
        self.waits.set()
        await self.may_end.wait()
        return {}

    async def much(self) -> Response:
        return {"text": "x" * 500_000}

    async def blunder(self) -> Response:
        raise ValueError("a bug")

    async def order(self, dish: str, spoons: int) -> Response:
        self.done.append("order")
        return {"dish": dish, "spoons": spoons}

    def commands(self) -> Commands:
        return {
            "greet": Command(self.greet),
            "wait": Command(self.wait),
            "much": Command(self.much),
            "blunder": Command(self.blunder),
            "order": Command(self.order, Order),
        }


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
def limits() -> dict[str, float]:
    """The time limits of the socket; a test's parameter of this name replaces them."""
    return {}


@pytest.fixture
def control(limits: dict[str, float], tmp_path: Path, handlers: Handlers) -> ControlSocket:
    return ControlSocket(tmp_path, handlers.commands(), **limits)


@pytest.fixture
async def running(control: ControlSocket, tmp_path: Path) -> AsyncIterator[Path]:
    """The state directory of a running control socket."""
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(control.run)
            yield tmp_path
            nursery.cancel_scope.cancel()


async def exchange(directory: Path, question: bytes, *, more: bool = False) -> bytes:
    """Send `question` and return all that comes back; the sending side stays open if `more`."""
    async with await trio.open_unix_socket(directory / SOCKET_NAME) as stream:
        await stream.send_all(question)
        if not more:
            await stream.send_eof()
        answer = b""
        try:
            async for part in stream:
                answer += part
        except trio.BrokenResourceError:
            pass  # closed by the server with unread bytes
        return answer


async def assert_serves(directory: Path) -> None:
    assert await call(directory, "greet") == {"ok": True, "message": "good day"}


# Commands


async def test_request_in_pieces_is_answered_with_a_line_of_json(running: Path) -> None:
    async with await trio.open_unix_socket(running / SOCKET_NAME) as stream:
        for piece in (b'{"comm', b'and": "gre', b'et"}', b"\n"):
            await stream.send_all(piece)
            await wait_all_tasks_blocked(0.01)
        answer = bytes(await stream.receive_some())
    assert answer.endswith(b"\n")
    assert json.loads(answer) == {"ok": True, "message": "good day"}


@pytest.mark.parametrize("limits", [{"actor_timeout_s": 0.01}])
async def test_command_whose_actor_does_not_answer_is_refused(running: Path) -> None:
    answer = await call(running, "wait")
    assert not answer["ok"]
    assert "being restarted" in answer["error"]


async def test_an_unknown_command_is_answered_with_the_known_ones(running: Path) -> None:
    answer = await call(running, "grete")
    assert answer["ok"] is False
    assert answer["error"] == ("command: 'grete' is not one of blunder, greet, much, order, wait")


async def test_a_large_answer_arrives_whole(running: Path) -> None:
    assert await call(running, "much") == {"ok": True, "text": "x" * 500_000}


async def test_connections_beyond_the_limit_wait(running: Path, handlers: Handlers) -> None:
    async def ask(command: str) -> None:
        answer = await call(running, command)
        answers[command] += answer["ok"]

    answers = Counter[str]()
    async with trio.open_nursery() as nursery:
        for _ in range(MAX_CONNECTIONS):
            nursery.start_soon(ask, "wait")
        while handlers.waiting < MAX_CONNECTIONS:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(ask, "greet")
        await wait_all_tasks_blocked(0.02)
        assert handlers.done == []
        handlers.may_end.set()
    assert answers == {"wait": MAX_CONNECTIONS, "greet": 1}


# Arguments


@pytest.mark.parametrize("arguments", ["", ', "arguments": {}', ', "arguments": null'])
async def test_arguments_of_a_command_without_any_may_be_left_out(
    running: Path, arguments: str
) -> None:
    question = f'{{"command": "greet"{arguments}}}\n'
    assert json.loads(await exchange(running, question.encode()))["ok"] is True


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "dish: is missing"),
        ({"dish": 1}, "dish: must be a string"),
        ({"dish": "phở", "spoons": "2"}, "spoons: must be a whole number"),
        ({"dish": "phở", "spoons": 5}, "spoons: must be 4 or less"),
        ({"dish": "phở", "spoon": 1}, "spoon: is not a field here"),
        ({"spoons": True}, "dish: is missing; spoons: must be a whole number"),
        (["phở"], "arguments must be an object"),
        ("phở", "arguments must be an object"),
        (None, "dish: is missing"),
    ],
)
async def test_wrong_arguments_are_named_and_nothing_is_done(
    running: Path, handlers: Handlers, arguments: JsonValue, error: str
) -> None:
    question = json.dumps({"command": "order", "arguments": arguments}).encode() + b"\n"
    assert json.loads(await exchange(running, question)) == {"ok": False, "error": error}
    assert handlers.done == []


async def test_arguments_are_not_logged(running: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await call(running, "order", {"dish": "secret soup"})
    await call(running, "order", {"dish": "secret soup", "spoons": "secret"})
    assert "control command: order" in caplog.text
    assert "secret" not in caplog.text


async def test_too_long_arguments_are_not_sent(running: Path, handlers: Handlers) -> None:
    room = MAX_REQUEST - len(json.dumps({"command": "order", "arguments": {"dish": ""}})) - 1
    assert (await call(running, "order", {"dish": "x" * room}))["ok"] is True
    with pytest.raises(Invalid, match=r"^the arguments are too long: .* at most 4096 bytes$"):
        await call(running, "order", {"dish": "x" * (room + 1)})
    assert handlers.done == ["order"]


# Bad requests


@pytest.mark.parametrize(
    "question",
    [
        b"greet",
        b"",
        b"[]",
        b"{}",
        b'{"command": null}',
        b'{"command": ["greet"]}',
        b'{"command": "greet"} {"command": "greet"}',
        b'{"command": "\xff"}',
        b"\xff\xfe",
        b"[" * (MAX_REQUEST - 1),
        b'{"a":' * 800,
    ],
    ids=lambda question: repr(question[:24]),
)
async def test_malformed_request_is_answered_as_an_unknown_command(
    running: Path, handlers: Handlers, question: bytes
) -> None:
    answer = json.loads(await exchange(running, question + b"\n"))
    assert answer["ok"] is False
    assert "is not one of" in answer["error"]
    assert handlers.done == []
    await assert_serves(running)


async def test_a_line_that_is_too_long_is_not_answered(running: Path) -> None:
    longest = b'{"command": "greet"}'.ljust(MAX_REQUEST - 1) + b"\n"
    assert json.loads(await exchange(running, longest))["ok"] is True
    assert await exchange(running, b" " + longest) == b""
    assert await exchange(running, b" " * (MAX_REQUEST + 1), more=True) == b""
    await assert_serves(running)


@pytest.mark.parametrize("half", [b"", b'{"command": "greet"', b'{"command": "greet"}'])
async def test_unfinished_line_is_not_answered(
    running: Path, handlers: Handlers, half: bytes
) -> None:
    assert await exchange(running, half) == b""
    assert handlers.done == []
    await assert_serves(running)


async def test_client_that_leaves_before_its_answer_disturbs_no_other(
    running: Path, handlers: Handlers
) -> None:
    for command in (b"greet", b"much"):
        async with await trio.open_unix_socket(running / SOCKET_NAME) as stream:
            await stream.send_all(b'{"command": "%s"}\n' % command)
    await assert_serves(running)


@pytest.mark.parametrize("limits", [{"timeout_s": 0.5}])
async def test_silent_clients_are_dropped_and_make_room(running: Path) -> None:
    streams = [await trio.open_unix_socket(running / SOCKET_NAME) for _ in range(MAX_CONNECTIONS)]
    for stream in streams:
        assert await stream.receive_some() == b""  # end of stream
        await stream.aclose()
    await assert_serves(running)


async def test_bug_in_a_command_is_logged_and_the_socket_stays(
    running: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await call(running, "blunder")
    assert answer == {"ok": False, "error": "internal error; the daemon's log has it"}
    assert "ValueError: a bug" in caplog.text
    await assert_serves(running)


# The socket


async def test_umask_is_restored(running: Path) -> None:
    (running / "file").touch()
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE((running / "file").stat().st_mode) == 0o666 & ~mask
    assert mask != 0o177


async def test_unfinished_command_does_not_delay_the_end(
    control: ControlSocket, tmp_path: Path, handlers: Handlers
) -> None:
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            await nursery.start(control.run)
            stream = await trio.open_unix_socket(tmp_path / SOCKET_NAME)
            await stream.send_all(b'{"command": "wait"}\n')
            await handlers.waits.wait()
            nursery.cancel_scope.cancel()
        async with stream:
            assert await stream.receive_some() == b""


async def test_a_socket_that_a_killed_daemon_left_is_replaced(
    control: ControlSocket, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET_NAME))
    (tmp_path / SOCKET_NAME).chmod(0o666)
    async with trio.open_nursery() as nursery:
        await nursery.start(control.run)
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600
        await assert_serves(tmp_path)
        nursery.cancel_scope.cancel()


async def test_directory_with_a_long_path_is_served(tmp_path: Path, handlers: Handlers) -> None:
    directory = tmp_path / ("d" * 200)  # a socket's address holds 107 bytes
    directory.mkdir()
    async with trio.open_nursery() as nursery:
        await nursery.start(ControlSocket(directory, handlers.commands()).run)
        await assert_serves(directory)
        nursery.cancel_scope.cancel()
    assert not (directory / SOCKET_NAME).exists()


# No daemon


async def test_missing_daemon_is_an_error_that_names_the_socket(tmp_path: Path) -> None:
    unserved = tmp_path / "unserved"
    unserved.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(unserved / SOCKET_NAME))
    for directory in (tmp_path, tmp_path / "nowhere", unserved):
        with pytest.raises(NotRunning) as why:
            await call(directory, "status")
        assert str(why.value).startswith(f"no daemon answers on {directory / SOCKET_NAME}; ")


@pytest.mark.parametrize("answer", [b'{"ok": tr', b"what?\n", b"[" * 100_000 + b"\n"])
async def test_malformed_answer_is_no_daemon(tmp_path: Path, answer: bytes) -> None:
    async def answering(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    async with trio.open_nursery() as nursery:
        listener = trio.socket.socket(trio.socket.AF_UNIX)
        await listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen()
        nursery.start_soon(trio.serve_listeners, answering, [trio.SocketListener(listener)])
        with pytest.raises(NotRunning, match="no daemon answers on "):
            await call(tmp_path, "status")
        nursery.cancel_scope.cancel()


async def test_daemon_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / SOCKET_NAME))
        silent.listen()
        with pytest.raises(NotRunning, match=r"did not answer on .* within 0\.05 s"):
            await call(tmp_path, "status", timeout_s=0.05)


async def test_socket_of_another_user_is_an_error_that_says_so(running: Path) -> None:
    (running / SOCKET_NAME).chmod(0)
    root = os.geteuid() == 0
    if root:  # root ignores modes
        os.seteuid(NOBODY)
    try:
        with pytest.raises(NotRunning, match=r"belongs to another user; run this as root"):
            await call(running, "status")
    finally:
        if root:
            os.seteuid(0)
