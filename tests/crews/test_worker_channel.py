"""The connection to a worker, with a plain socket in the worker's place."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio

from smartlinkd.crews.protocol import (
    MAX_LINE,
    MAX_OUTPUT,
    Inputs,
    Log,
    ProtocolFault,
    Result,
    Started,
    Stop,
    ToolResult,
    encode,
)
from smartlinkd.crews.worker_channel import WorkerChannel

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


async def test_a_message_may_come_in_pieces(channel: WorkerChannel, theirs: socket.socket) -> None:
    heard = []

    async def hear() -> None:
        heard.append(await anext(channel))
        heard.append(await anext(channel))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hear)
        for byte in STARTED + b'{"type":"log","text":"Ch\xc3\xa0o"}\n':
            theirs.send(bytes([byte]))
            await trio.testing.wait_all_tasks_blocked(0.0005)
    assert heard == [Started(), Log(text="Chào")]


async def test_a_flood_lets_others_run(channel: WorkerChannel, theirs: socket.socket) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    theirs.send(STARTED + b'{"type":"step"}\n' * 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(101):
            await anext(channel)
        nursery.cancel_scope.cancel()
    assert turns >= 100


async def test_received_returns_messages_that_were_read_already(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED + b'{"type":"log","text":"1"}\n{"type":"log","text":"2"}\n{"type"')
    assert channel.received(9) == []  # nobody has read it yet
    assert await anext(channel) == Started()
    assert channel.received(1) == [Log(text="1")]
    theirs.send(b':"log","text":"3"}\n')
    assert channel.received(9) == [Log(text="2")]
    assert await anext(channel) == Log(text="3")


async def test_received_returns_nothing_after_the_last_message(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED + CALL + RESULT + LOG)
    await anext(channel)
    assert [message.type for message in channel.received(9)] == ["tool_call"]
    assert channel.final == Result(output="done")
    assert channel.received(9) == []
    with pytest.raises(StopAsyncIteration):
        await anext(channel)


@pytest.mark.parametrize(
    "broken", [b"{}\n", b"x" * (MAX_LINE + 1) + b"\n"], ids=["no message", "too long"]
)
async def test_at_hand_is_what_came_before_a_broken_line(
    channel: WorkerChannel, theirs: socket.socket, nursery: trio.Nursery, broken: bytes
) -> None:
    connection = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    nursery.start_soon(connection.send_all, STARTED + CALL + broken + LOG)
    await anext(channel)
    heard = channel.received(9)
    async for message in channel:
        heard.append(message)
    assert [message.type for message in heard] == ["tool_call"]
    assert isinstance(channel.fault, ProtocolFault)
    assert channel.received(9) == []


async def test_a_cancelled_wait_loses_nothing(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED[:5])
    with trio.move_on_after(0.01) as patience:
        await anext(channel)
    assert patience.cancelled_caught
    theirs.send(STARTED[5:])
    assert await anext(channel) == Started()


async def test_a_cancelled_send_leaves_lines_whole(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    with trio.move_on_after(0.01) as patience:
        await channel.send(Stop())
    assert patience.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, Stop())
        assert await lines(theirs, 2) == [encode(LARGE), encode(Stop())]


async def test_sends_of_two_tasks_do_not_mix(channel: WorkerChannel, theirs: socket.socket) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.deliver)
        await trio.testing.wait_all_tasks_blocked(0.001)
        nursery.start_soon(channel.send, Stop())
        await trio.testing.wait_all_tasks_blocked(0.001)
        assert await lines(theirs, 2) == [encode(LARGE), encode(Stop())]


async def test_the_inputs_go_first_whoever_sends(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, Stop())
        await trio.testing.wait_all_tasks_blocked(0.001)
        nursery.start_soon(channel.deliver)
        assert await lines(theirs, 2) == [encode(LARGE), encode(Stop())]


async def test_one_that_does_not_read_is_given_up_and_its_hearer_told(
    channel: WorkerChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smartlinkd.crews.worker_channel.SEND_LIMIT", 0.02)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(channel.send, Stop())
        assert [message async for message in channel] == []
    assert channel.fault == ProtocolFault("it did not read `stop` within 0.02 s")


async def test_an_answer_that_is_not_read_any_more_is_no_fault(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED + CALL)
    assert len([await anext(channel) for _ in range(2)]) == 2
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, ToolResult(call_id="1"))
            await trio.testing.wait_all_tasks_blocked(0.001)
            theirs.send(RESULT)
            nursery.start_soon(anext, channel, None)
            await trio.testing.wait_all_tasks_blocked(0.001)
            theirs.close()
    assert channel.fault is None
    assert channel.final == Result(output="done")


async def test_nothing_is_sent_to_one_that_has_gone(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.close()
    await channel.deliver()
    await channel.send(Stop())
    assert [message async for message in channel] == []
    assert channel.fault is None


async def test_what_is_not_a_whole_line_is_kept(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED + RESULT[:10])
    theirs.close()
    assert [message async for message in channel] == [Started()]
    assert channel.unfinished == RESULT[:10]
    assert channel.final is None


async def test_the_last_message_ends_it_and_nothing_is_heard_after_it(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(STARTED + RESULT + b"x\n" + CALL)
    with trio.fail_after(5):
        assert [message async for message in channel] == [Started()]
        assert [message async for message in channel] == []
    assert channel.fault is None
    assert channel.final == Result(output="done")


async def test_a_hearer_that_comes_again_after_a_fault_hears_nothing(
    channel: WorkerChannel, theirs: socket.socket
) -> None:
    theirs.send(b"x\n" + STARTED)
    for _ in range(2):
        assert [message async for message in channel] == []
    assert channel.fault is not None
    assert channel.fault.line == b"x"
