"""What one client may take: time for its head, time and bytes for its body, one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

if TYPE_CHECKING:
    from daemon.serving import GuardedQuart
    from tests.serving.conftest import AnswerOf, Seen, Serving

HEAD = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n"
MAX = 1024 * 1024
SOON = 3.0  # seconds; far below the limits that are not to be waited for


async def test_a_head_that_drips_in_is_cut_off(serving: Serving) -> None:
    async with serving(idle_seconds=0.2) as server, await server.connect() as stream:

        async def drip() -> None:
            while True:
                await stream.send_all(b"A")
                await trio.sleep(0.01)  # a byte at a time is the attack

        with trio.fail_after(SOON), pytest.raises(trio.BrokenResourceError):
            await drip()


async def test_a_connection_that_says_nothing_is_closed(serving: Serving) -> None:
    async with serving(idle_seconds=0.1) as server, await server.connect() as stream:
        with trio.fail_after(SOON):
            assert await stream.receive_some() == b""


async def test_a_slow_handler_is_not_cut_off(
    serving: Serving, seen: Seen, answer_of: AnswerOf
) -> None:
    async with serving(idle_seconds=0.05) as server, await server.connect() as stream:
        await stream.send_all(GET.replace(b"small", b"wait"))
        await trio.sleep(0.2)  # past the idle time, which does not count while work is done
        seen.finish.set()
        assert (await answer_of(stream)).body == b"waited"


async def test_a_body_that_stops_is_a_timeout(serving: Serving, app: GuardedQuart) -> None:
    app.config["BODY_TIMEOUT"] = 0.1
    async with serving() as server:
        answer = await server.ask(HEAD + b"Content-Length: 5\r\n\r\nab")
        assert (answer.status, answer.headers["connection"]) == (408, "close")


async def test_the_largest_body_is_taken_and_the_connection_kept(
    serving: Serving, answer_of: AnswerOf
) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: %d\r\n\r\n" % MAX + bytes(MAX))
        assert (await answer_of(stream)).body == str(MAX).encode()
        await stream.send_all(GET)
        assert (await answer_of(stream)).body == b"ok"


async def test_a_body_that_says_it_is_larger_is_refused(serving: Serving) -> None:
    async with serving() as server:
        answer = await server.ask(HEAD + b"Content-Length: %d\r\n\r\n" % (MAX + 1))
        assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_a_chunked_body_that_grows_larger_is_refused(serving: Serving) -> None:
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    async with serving() as server:
        answer = await server.ask(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17)
        assert (answer.status, answer.headers["connection"]) == (413, "close")


async def test_who_asks_before_sending_a_body_is_told_to_continue(
    serving: Serving, answer_of: AnswerOf
) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        await stream.send_all(b"abc")
        assert (await answer_of(stream)).body == b"3"


async def test_who_asks_before_sending_too_much_is_refused(serving: Serving) -> None:
    async with serving() as server:
        raw = await server.send_and_read(
            HEAD + b"Expect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"
        )
        assert b"HTTP/1.1 413" in raw


async def test_bytes_behind_the_body_are_the_next_request(serving: Serving) -> None:
    async with serving() as server:
        raw = await server.send_and_read(HEAD + b"Content-Length: 2\r\n\r\nabc\x00d\r\n\r\n")
        assert [raw.count(b" 200 "), raw.count(b" 400 ")] == [1, 1]


async def test_a_body_that_ends_early_is_a_bad_request(serving: Serving) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(HEAD + b"Content-Length: 5\r\n\r\nab")
        await stream.send_eof()
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 400")


async def test_a_failure_to_a_head_request_has_no_body(serving: Serving) -> None:
    async with serving() as server:
        answer = await server.ask(b"HEAD ?x HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (answer.status, answer.body) == (400, b"")


async def test_one_connection_too_many_is_told_so(serving: Serving) -> None:
    async with serving(connections=1) as server, await server.connect() as only:
        await only.send_all(GET)
        await only.receive_some()
        answer = await server.ask(GET)
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.body.startswith(b'{"ok": false')


async def test_a_place_is_free_as_soon_as_an_idle_client_leaves(
    serving: Serving, answer_of: AnswerOf
) -> None:
    async with serving(connections=1, idle_seconds=60) as server:
        async with await server.connect() as only:
            await only.send_all(GET)
            await answer_of(only)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(SOON):
            while not await server.is_answered():
                pass


async def test_no_server_header_and_no_access_log(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with serving() as server:
        answer = await server.ask(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert "server" not in answer.headers
    assert not [record for record in caplog.records if record.name.startswith("hypercorn")]
    assert "/small" not in caplog.text
