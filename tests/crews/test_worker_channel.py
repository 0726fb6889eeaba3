"""The connection to a worker, with a plain socket in the worker's place."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.crews.protocol import (
    MAX_LINE,
    MAX_OUTPUT,
    Inputs,
    Log,
    ProtocolFault,
    Result,
    Started,
    Stop,
    encode,
)
from smartlinkd.crews.worker_channel import SEND_LIMIT, WorkerChannel

LARGE = Inputs(inputs={"text": "x" * MAX_LINE})
STARTED = b'{"type":"started"}\n'
CALL = b'{"type":"tool_call","call_id":"1","tool":"x","arguments":{}}\n'
LOG = b'{"type":"log","text":"more"}\n'
RESULT = b'{"type":"result","output":"done"}\n'


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def theirs(ends: tuple[socket.socket, socket.socket]) -> socket.socket:
    return ends[1]


@pytest.fixture
async def channel(ends: tuple[socket.socket, socket.socket]) -> WorkerChannel:
    connection = trio.socket.from_stdlib_socket(ends[0])
    return WorkerChannel(connection, LARGE, max_output=MAX_OUTPUT)


async def lines(theirs: socket.socket, count: int) -> list[bytes]:
    """So many whole lines, as the worker reads them."""
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    received = b""
    while received.count(b"\n") < count:
        received += await stream.receive_some()
    return received.splitlines(keepends=True)


async def test_message_in_pieces_is_read_whole(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    heard = []

    async def hear() -> None:
        heard.append(await anext(channel))
        heard.append(await anext(channel))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        for byte in STARTED + b'{"type":"log","text":"Ch\xc3\xa0o"}\n':
            theirs.send(bytes([byte]))
            await wait_all_tasks_blocked(0.0005)
    assert heard == [Started(), Log(text="Chào")]


async def test_iteration_ends_with_the_last_message(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED + CALL + RESULT + LOG)
    assert [message.type async for message in channel] == ["started", "tool_call"]
    assert channel.final == Result(output="done")


@pytest.mark.parametrize(
    "broken", [b"{}\n", b"x" * (MAX_LINE + 1) + b"\n"], ids=["no message", "too long"]
)
async def test_messages_before_a_broken_line_are_read(
    channel: WorkerChannel, theirs: socket.socket, nursery: trio.Nursery, broken: bytes
) -> None:
    connection = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    nursery.start_soon(connection.send_all, STARTED + CALL + broken + LOG)
    assert [message.type async for message in channel] == ["started", "tool_call"]
    assert isinstance(channel.fault, ProtocolFault)


async def test_cancelled_read_loses_nothing(channel: WorkerChannel, theirs: socket.socket) -> None:
    theirs.send(STARTED[:5])
    with trio.move_on_after(0.01) as patience:
        await anext(channel)
    assert patience.cancelled_caught
    theirs.send(STARTED[5:])
    assert await anext(channel) == Started()


async def test_cancelled_send_leaves_lines_whole(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    with trio.move_on_after(0.01) as patience:
        await channel.send(Stop())
    assert patience.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, Stop())
        assert await lines(theirs, 2) == [encode(LARGE), encode(Stop())]


async def test_worker_that_does_not_read_in_time_breaks_the_protocol(
    channel: WorkerChannel, mock_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, Stop())
        await wait_all_tasks_blocked()
        mock_clock.jump(SEND_LIMIT)
        assert [message async for message in channel] == []
    assert channel.fault == ProtocolFault("it did not read `stop` within 30 s")


async def test_send_to_a_worker_that_has_gone_does_nothing(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.close()
    await channel.deliver()
    await channel.send(Stop())
    assert [message async for message in channel] == []
    assert channel.fault is None
