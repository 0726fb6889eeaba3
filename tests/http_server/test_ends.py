"""How a connection ends that nobody is to blame for: in its time, and without a word in the log."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import trio
from trio.testing import wait_all_tasks_blocked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from trio.testing import MockClock

    from smartlinkd.http_server import GuardedQuart
    from tests.http_server.conftest import AnswerOf, Seen, Serving

GET = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"
SOON = 3.0  # seconds
RESET = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # in place of an end of file


async def test_a_reset_cancels_the_handler_and_is_not_told(
    serving: Serving, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        async with await server.connect() as stream:
            await stream.send_all(WAIT)
            await seen.started.wait()
            stream.setsockopt(*RESET)
        with trio.fail_after(SOON):
            await seen.cancelled.wait()
        assert await server.is_answered()
    assert not caplog.records


async def test_an_answer_without_an_end_ends_when_it_cannot_be_sent(
    app: GuardedQuart, serving: Serving, seen: Seen
) -> None:
    """Nothing else tells that its client has left: behind another request nothing is read."""

    @app.get("/endless")
    async def endless() -> AsyncIterator[bytes]:
        seen.started.set()
        while True:
            yield b"an event"
            await trio.lowlevel.checkpoint()

    async with serving() as server:
        async with await server.connect() as stream:
            await stream.send_all(GET.replace(b"small", b"endless") + GET)
            await seen.started.wait()
        server.stop.set()
        with trio.fail_after(SOON):
            await server.ended.wait()


async def test_who_has_gone_before_it_was_looked_at_is_not_told(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.setsockopt(*RESET)
        assert await server.is_answered()
    assert not caplog.records


async def test_the_time_of_an_idle_one_is_counted_from_its_last_answer(
    serving: Serving, answer_of: AnswerOf, mock_clock: MockClock
) -> None:
    async with serving(idle_seconds=15) as server, await server.connect() as stream:
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await stream.send_all(GET)
        await answer_of(stream)
        for seconds, is_over in ((0, False), (5, False), (9, False), (1, True)):
            await wait_all_tasks_blocked()
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
            assert stream.socket.is_readable() is is_over
        assert await stream.receive_some() == b""
