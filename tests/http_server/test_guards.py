"""Each guard of docs/decisions/075-http-server.md, by its number there.

Those of large heads (6) and reason phrases (10) are in test_failures.py, that of ambiguous bodies
(12) in tests/security/test_http.py.
"""

from __future__ import annotations

from functools import partial

import pytest
import trio
from quart import request
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.http_server import GuardedQuart, ServedApp, bind, serve
from smartlinkd.http_server.http1 import Http1
from tests.http_server.conftest import GET, LARGE, LAST_GET, SOON, Running, Seen, Serving, client_of

UPGRADE = b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: "
WEBSOCKET = (
    UPGRADE + b"websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ODD_HOSTS = [b"a" * 99, b"..", b"\xff", b"a:b:c", b"[", b""]


async def _fault(*_: object) -> None:
    raise ZeroDivisionError("client's own words")


# 1. One connection's exception


async def test_exception_in_one_connection_ends_only_that_connection(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as server:
        with monkeypatch.context() as broken:
            broken.setattr(Http1, "handle", _fault)
            assert await server.send_and_read(GET) == b""
        assert await server.is_answered()
    assert "ended by ZeroDivisionError at" in caplog.text
    assert "client's own words" not in caplog.text


@pytest.mark.parametrize(
    "odd",
    [UPGRADE + b"h2c\r\n\r\n", WEBSOCKET]
    + [LAST_GET.replace(b": a\r", b": %b\r" % host) for host in ODD_HOSTS],
)
async def test_upgrade_or_odd_host_is_answered_as_plain_request(
    serving: Serving, odd: bytes
) -> None:
    async with serving() as server:
        assert (await server.ask(odd)).status == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"/small", 200),
        (b"http://a/small", 200),
        (b"HTTPS://a:1/small?q", 200),
        (b"http://[/small", 200),
        (b"?small", 400),
        (b"small", 400),
        (b"http://a", 400),
        (b"*", 400),
    ],
)
async def test_only_a_path_reaches_the_application(
    serving: Serving, target: bytes, status: int
) -> None:
    async with serving() as server:
        answer = await server.ask(LAST_GET.replace(b"/small", target))
        assert (answer.status, answer.body[:3]) == (status, b"ok" if status == 200 else b'{"o')


async def test_url_within_a_target_stays_there(serving: Serving, app: GuardedQuart) -> None:
    """Taken out of a path it would make another of it than the proxy before us has let pass."""

    @app.get("/asked")
    async def asked() -> str:
        return request.query_string.decode()

    async with serving() as server:
        for target in (b"/asked?x=http://a/b", b"http://a/asked?x=http://a/b"):
            answer = await server.ask(LAST_GET.replace(b"/small", target))
            assert answer.body == b"x=http://a/b"
        within = await server.ask(LAST_GET.replace(b"/small", b"/smhttp://a/all"))
        assert within.status == 404
        before = await server.ask(LAST_GET.replace(b"/small", b"/http://a/small"))
        assert before.status == 404


async def test_exception_of_the_application_is_500_in_json(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(GuardedQuart, "handle_request", _fault)
    async with serving() as server:
        answer = await server.ask(LAST_GET)
        assert answer.status == 500
        assert answer.headers["content-type"] == "application/json"
        assert answer.body.startswith(b'{"ok": false, "error": "internal error')
        head = await server.ask(LAST_GET.replace(b"GET", b"HEAD"))
        assert (head.status, head.body) == (500, b"")
    assert [record.name for record in caplog.records] == ["smartlinkd.http_server.server"] * 2


# 2. Finished connections


@pytest.mark.parametrize("request_", [LAST_GET, b"GET /small HTTP/1.0\r\n\r\n"])
async def test_connection_close_or_http_1_0_closes_at_once(
    serving: Serving, request_: bytes
) -> None:
    async with serving(idle_seconds=60, linger_seconds=60) as server:
        with trio.fail_after(SOON):
            assert (await server.ask(request_)).body == b"ok"


async def test_unread_body_is_followed_by_the_next_request(serving: Serving) -> None:
    """However quick the answer is, it does not come before what has arrived is known."""
    with_body = GET[:-2] + b"Content-Length: 5\r\n\r\nhello"
    async with serving() as server:
        for _ in range(20):  # trio's order is drawn anew each time
            said = await server.send_and_read(with_body + LAST_GET)
            assert said.count(b"HTTP/1.1 200 ") == 2


async def test_head_of_a_stream_is_sent_before_its_first_event(
    serving: Serving, seen: Seen
) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(GET.replace(b"small", b"stream"))
        head = b""
        with trio.fail_after(SOON):
            while not head.endswith(b"\r\n\r\n"):
                head += await stream.receive_some()
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        seen.finish.set()


# 3. Clients that do not read


async def _stalled(server: Running) -> trio.SocketStream:
    """A client that asks for the large answer and reads nothing of it."""
    stream = await server.connect()
    await stream.send_all(GET.replace(b"small", b"large"))
    return stream


async def _read_on(stream: trio.SocketStream) -> None:
    while await stream.receive_some():
        pass


async def test_client_that_stops_reading_does_not_delay_the_stop(
    serving: Serving, seen: Seen
) -> None:
    async with serving(send_seconds=0.2) as server, await _stalled(server):
        await seen.started.wait()
        server.stop.set()
        with trio.fail_after(SOON):
            await server.ended.wait()


async def test_client_that_stops_reading_is_cut_off(
    mock_clock: MockClock, serving: Serving, seen: Seen
) -> None:
    async with serving(send_seconds=10) as server, await _stalled(server) as stream:
        await seen.started.wait()
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(10)
        await wait_all_tasks_blocked(0.05)
        with pytest.raises(trio.BrokenResourceError):
            await _read_on(stream)


async def test_client_that_reads_slowly_gets_the_whole_answer(
    mock_clock: MockClock, serving: Serving
) -> None:
    async with serving(send_seconds=0.5) as server, await _stalled(server) as stream:
        received, pause_at = 0, 0
        while received < LARGE:
            data = await stream.receive_some(1024 * 1024)
            assert data
            received += len(data)
            if received >= pause_at:
                pause_at += 4 * 1024 * 1024
                await wait_all_tasks_blocked()
                mock_clock.jump(0.08)  # this is the slowness: 0.64 s in all


TOO_LARGE = 24 * 1024 * 1024
UPLOAD = b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % TOO_LARGE


async def test_early_answer_reaches_client_that_sends_all_first(serving: Serving) -> None:
    async with serving() as server, await server.connect() as stream:
        await stream.send_all(UPLOAD)
        await stream.send_all(bytes(TOO_LARGE))
        assert b"unread" in await stream.receive_some()


async def test_client_that_does_not_close_after_the_answer_is_closed(
    serving: Serving,
) -> None:
    async with (
        serving(connections=1, linger_seconds=0.1) as server,
        await server.connect() as stream,
    ):
        await stream.send_all(LAST_GET)
        with trio.fail_after(SOON):
            while not await server.is_answered():
                pass


# 7. The descriptors


async def test_sockets_stay_open_for_the_next_server_and_are_not_inherited(
    app: GuardedQuart,
) -> None:
    [listening] = bind("127.0.0.1", 0)
    with listening:
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                stop = trio.Event()
                await nursery.start(partial(serve, ServedApp(app), [listening], grace=0, stop=stop))
                assert await client_of(listening).is_answered()
                stop.set()
        assert not listening.get_inheritable()
