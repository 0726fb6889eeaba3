"""One connection: its time, its bytes, when it gives way to another, and how it ends."""

from __future__ import annotations

import json
import re
import socket
import struct
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.http_server.app import BODY_SECONDS
from smartlinkd.http_server.server import LOG_INTERVAL_S
from tests.http_server.conftest import GET, LAST_GET, SOON, WAIT, Seen, Serving, read_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from smartlinkd.http_server import GuardedQuart

HEAD = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
MAX = 1024 * 1024


async def test_head_that_drips_in_is_cut_off(serving: Serving) -> None:
    async with serving(idle_seconds=0.2) as server, await server.connect() as stream:

        async def drip() -> None:
            while True:
                await stream.send_all(b"A")
                await trio.sleep(0.01)  # a byte at a time is the attack

        with trio.fail_after(SOON), pytest.raises(trio.BrokenResourceError):
            await drip()


async def test_slow_handler_is_not_cut_off(
    mock_clock: MockClock, serving: Serving, seen: Seen
) -> None:
    async with serving(idle_seconds=5) as server, await server.connect() as stream:
        await stream.send_all(WAIT)
        await seen.started.wait()
        mock_clock.jump(20)  # past the idle time, which does not count while work is done
        await wait_all_tasks_blocked()
        seen.finish.set()
        assert (await read_answer(stream)).body == b"waited"


async def test_body_that_stops_is_408(serving: Serving, mock_clock: MockClock) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: 5\r\n\r\nab")
        await wait_all_tasks_blocked()
        mock_clock.jump(BODY_SECONDS)
        answer = await read_answer(stream)
        assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_largest_body_is_taken_and_the_connection_kept(serving: Serving) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: %d\r\n\r\n" % MAX + bytes(MAX))
        assert (await read_answer(stream)).body == str(MAX).encode()
        await stream.send_all(GET)
        assert (await read_answer(stream)).body == b"ok"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: %d\r\n\r\n" % (MAX + 1),
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % (MAX + 1),
        b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + bytes(0x10000) + b"\r\n") * 17,
    ],
    ids=["its length", "its length, asked before", "chunks"],
)
async def test_body_over_the_limit_is_413_and_closes(serving: Serving, body: bytes) -> None:
    async with serving() as server:
        said = await server.send_and_read(HEAD + body)
        assert b"HTTP/1.1 413 " in said
        assert b"\r\nconnection: close\r\n" in said


async def test_expect_100_continue_is_answered_before_the_body(serving: Serving) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        await stream.send_all(b"abc")
        assert (await read_answer(stream)).body == b"3"


async def test_body_that_ends_early_is_400(serving: Serving) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: 5\r\n\r\nab")
        await stream.send_eof()
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 400")


async def test_failure_of_a_head_request_has_no_body(serving: Serving) -> None:
    async with serving() as server:
        answer = await server.ask(b"HEAD ?x HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (answer.status, answer.body) == (400, b"")


@pytest.mark.parametrize("is_behind_it", [True, False], ids=["behind it", "later"])
async def test_nonsense_after_a_head_request_is_400_with_a_body_and_an_id_of_its_own(
    *, serving: Serving, is_behind_it: bool
) -> None:
    head, no_request = b"HEAD /small HTTP/1.1\r\nHost: a\r\n\r\n", b"no request\r\n\r\n"
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(head + no_request if is_behind_it else head)
        with trio.fail_after(SOON):
            said = await stream.receive_some()
            assert said.startswith(b"HTTP/1.1 200 ")
            if not is_behind_it:
                await stream.send_all(no_request)
            while part := await stream.receive_some():
                said += part
    assert len(set(re.findall(rb"x-request-id: (\w+)", said))) == 2
    _, _, second = said.partition(b"\r\n\r\n")
    assert second.startswith(b"HTTP/1.1 400 ")
    assert second.endswith(b"}")


@pytest.mark.parametrize("method", [b"head", b"Head", b"get"])
async def test_method_in_small_letters_is_answered_with_a_body(
    serving: Serving, caplog: pytest.LogCaptureFixture, method: bytes
) -> None:
    """`head` is not HEAD (RFC 9110, section 9.1), so the client waits for a body."""
    async with serving() as server:
        answer = await server.ask(LAST_GET.replace(b"GET", method))
        assert (answer.status, answer.body) == (200, b"ok")
    assert not caplog.records


async def test_request_beyond_the_connections_is_503_and_none_is_cut_off(
    serving: Serving, seen: Seen
) -> None:
    async with serving(connections=1) as server, await server.connect() as only:
        await only.send_all(WAIT)
        await seen.started.wait()
        answer = await server.ask(GET)
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])
        text = "all connections are taken; try again in a moment"
        assert json.loads(answer.body) == {"ok": False, "error": text, "message": text}
        seen.finish.set()
        assert (await read_answer(only)).body == b"waited"


async def say_more(stream: trio.SocketStream) -> None:
    await wait_all_tasks_blocked()
    for _ in range(100):  # the first of it is what has the kernel say that nobody hears it
        await stream.send_all(b"x")


async def test_refused_clients_beyond_the_limit_are_reset(
    serving: Serving, seen: Seen, mock_clock: MockClock
) -> None:
    """And as many again when these have left."""
    async with serving(connections=1, refusals=1) as server, await server.connect() as only:
        await only.send_all(WAIT)
        await seen.started.wait()
        for _ in range(2):
            async with await server.connect() as told, await server.connect() as another:
                assert [(await read_answer(each)).status for each in (told, another)] == [503, 503]
                await say_more(told)
                with pytest.raises(trio.BrokenResourceError):
                    await say_more(another)
            await wait_all_tasks_blocked()
        seen.finish.set()


async def test_full_server_is_logged_once_an_interval(
    serving: Serving, seen: Seen, mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(connections=1) as server, await server.connect() as only:
        await only.send_all(WAIT)
        await seen.started.wait()
        for passed, told in [(0, 1), (LOG_INTERVAL_S - 1, 1), (2, 1), (LOG_INTERVAL_S + 1, 2)]:
            mock_clock.jump(passed)
            assert (await server.ask(GET)).status == 503
            assert caplog.text.count("all 1 connections are at work") == told


async def test_half_a_body_does_not_give_way(serving: Serving) -> None:
    async with serving(connections=1) as server, await server.connect() as only:
        await only.send_all(HEAD + b"Content-Length: 2\r\n\r\na")
        await wait_all_tasks_blocked()
        assert (await server.ask(GET)).status == 503
        await only.send_all(b"b")
        assert (await read_answer(only)).body == b"2"


async def test_connection_that_had_its_last_answer_gives_way(serving: Serving) -> None:
    """The server reads on only so that the answer arrives."""
    async with serving(connections=1) as server, await server.connect() as only:
        await only.send_all(b"no request\r\n\r\n")
        await wait_all_tasks_blocked()
        assert await server.is_answered()
        assert (await only.receive_some()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("said", [b"", b"GET /small HTTP/1.1\r\nHo"])
async def test_longest_idle_connection_gives_way(serving: Serving, said: bytes) -> None:
    async with (
        serving(connections=2, idle_seconds=60) as server,
        await server.connect() as older,
        await server.connect() as oldest,
    ):
        await older.send_all(GET)
        await read_answer(older)  # from here on it is idle, later than the other
        await oldest.send_all(said)
        await wait_all_tasks_blocked()
        assert await server.is_answered()
        with trio.fail_after(SOON):
            assert await oldest.receive_some() == b""
        await older.send_all(GET)
        assert (await read_answer(older)).body == b"ok"


async def test_place_is_free_as_soon_as_an_idle_client_leaves(serving: Serving) -> None:
    async with serving(connections=1, idle_seconds=60) as server:
        async with await server.connect() as only:
            await only.send_all(GET)
            await read_answer(only)
            await wait_all_tasks_blocked()
        with trio.fail_after(SOON):
            while not await server.is_answered():
                pass


RESET = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # in place of an end of file


@pytest.mark.parametrize("is_reset", [True, False])
async def test_client_that_leaves_cancels_the_handler_and_is_not_logged(
    serving: Serving, seen: Seen, caplog: pytest.LogCaptureFixture, *, is_reset: bool
) -> None:
    async with serving() as server:
        async with await server.connect() as stream:
            await stream.send_all(WAIT)
            await seen.started.wait()
            if is_reset:
                stream.setsockopt(*RESET)
        with trio.fail_after(SOON):
            await seen.cancelled.wait()
        assert await server.is_answered()
    assert not caplog.records


async def test_endless_answer_ends_when_its_client_has_left(
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


async def test_client_gone_before_it_is_accepted_is_not_logged(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.setsockopt(*RESET)
        assert await server.is_answered()
    assert not caplog.records


async def test_idle_time_is_counted_from_the_last_answer(
    serving: Serving, mock_clock: MockClock
) -> None:
    async with serving(idle_seconds=15) as server, await server.connect() as stream:
        await wait_all_tasks_blocked()
        mock_clock.jump(10)
        await stream.send_all(GET)
        await read_answer(stream)
        for seconds, is_over in ((0, False), (5, False), (9, False), (1, True)):
            await wait_all_tasks_blocked()
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
            assert stream.socket.is_readable() is is_over
        assert await stream.receive_some() == b""
