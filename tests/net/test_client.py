"""Plain HTTP: bounded, honest, and without a memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import httpx
import pytest
import trio
import trio.testing

from smartlinkd import __version__
from smartlinkd.net.client import HttpClient, NoAnswer, Reply

URL = "https://shop.example/secret-path?secret=1"
MANY = 150
"""Connections; more than httpx's own limit."""


async def ask(handler: object, **options: object) -> Reply:
    transport = httpx.MockTransport(handler)  # type: ignore[arg-type]
    bounds: dict[str, object] = {"deadline": 5.0, "max_body": 100} | options
    async with HttpClient(transport) as client:
        return await client.request("GET", URL, **bounds)  # type: ignore[arg-type]


class Drip(httpx.AsyncByteStream):
    """A body that comes a byte a second."""

    def __init__(self) -> None:
        self.sent = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.sent += 1
            yield b"x"
            await trio.sleep(1)


async def test_an_answer_in_full() -> None:
    reply = await ask(lambda _: httpx.Response(201, text="càng"))
    assert (reply.status, reply.text) == (201, "càng")


async def test_it_says_who_it_is_and_asks_for_a_plain_body() -> None:
    seen: list[httpx.Headers] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200)

    await ask(handler)
    assert seen[0]["user-agent"] == f"smartlinkd/{__version__}"
    assert seen[0]["accept-encoding"] == "identity"


async def test_cookies_are_never_kept() -> None:
    cookies: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        cookies.append(request.headers.get("cookie"))
        return httpx.Response(200, headers={"Set-Cookie": "SPC_F=1; Path=/; Domain=shop.example"})

    async with HttpClient(httpx.MockTransport(handler)) as client:
        for _ in range(2):
            await client.request("GET", URL, deadline=5, max_body=10)
    assert cookies == [None, None]


async def test_a_cookie_that_cannot_be_read_is_not_looked_at() -> None:
    # The standard library warns of it, and warnings are errors here.
    ageless = f"SPC_F=1; Max-Age={'9' * 400}"
    reply = await ask(lambda _: httpx.Response(200, headers={"Set-Cookie": ageless}))
    assert reply.status == 200


async def test_redirects_are_shown_and_not_followed() -> None:
    reply = await ask(lambda _: httpx.Response(302, headers={"Location": "/x"}))
    assert (reply.status, reply.headers["location"]) == (302, "/x")


@pytest.mark.parametrize(
    "location", ["https://xn--shpee-jsd.vn/", "http://0177.0.0.1/", "javascript:x", "https://[::1"]
)
async def test_a_redirect_to_what_is_no_address_is_an_answer_like_any(location: str) -> None:
    reply = await ask(lambda _: httpx.Response(302, headers={"Location": location}))
    assert (reply.status, reply.headers["location"]) == (302, location)


async def test_a_body_is_read_up_to_its_bound() -> None:
    reply = await ask(lambda _: httpx.Response(200, content=b"y" * 101))
    assert reply.text == "y" * 100


async def test_a_body_of_exactly_the_bound_is_whole() -> None:
    reply = await ask(lambda _: httpx.Response(200, content=b"y" * 100))
    assert reply.text == "y" * 100


async def test_an_endless_body_is_left_at_the_bound(autojump_clock: trio.testing.MockClock) -> None:
    drip = Drip()
    reply = await ask(lambda _: httpx.Response(200, stream=drip), max_body=3, deadline=60)
    assert reply.text == "xxx"
    assert drip.sent == 4


async def test_the_deadline_is_for_the_whole_answer(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(NoAnswer, match="no answer within 5 seconds"):
        await ask(lambda _: httpx.Response(200, stream=Drip()))
    assert trio.current_time() == pytest.approx(5, abs=0.01)


async def test_nobody_waits_for_connections_of_others(nursery: trio.Nursery) -> None:
    connected = trio.Semaphore(0)

    async def hang(stream: trio.SocketStream) -> None:
        async with stream:
            connected.release()
            await trio.sleep_forever()

    (listener,) = await nursery.start(partial(trio.serve_tcp, hang, 0, host="127.0.0.1"))
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    async with HttpClient() as client, trio.open_nursery() as asking:
        for _ in range(MANY):
            asking.start_soon(partial(client.request, "GET", url, deadline=60, max_body=1))
        with trio.fail_after(5):
            for _ in range(MANY):
                await connected.acquire()
        asking.cancel_scope.cancel()
    nursery.cancel_scope.cancel()


async def test_no_proxy_of_the_environment_is_asked(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 204 No Content\r\n\r\n")

    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    (listener,) = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    async with HttpClient() as client:
        assert (await client.request("GET", url, deadline=5, max_body=1)).status == 204
    nursery.cancel_scope.cancel()


async def test_a_deadline_of_the_callers_stays_the_callers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.move_on_after(2) as scope:
        await ask(lambda _: httpx.Response(200, stream=Drip()))
    assert scope.cancelled_caught


async def test_a_body_that_was_compressed_unasked_is_not_unpacked() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Drip())

    with pytest.raises(NoAnswer, match="'gzip'"):
        await ask(handler)


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("cannot reach secret=1"),
        httpx.ReadError("secret=1"),
        httpx.RemoteProtocolError("secret=1"),
    ],
)
async def test_a_broken_connection_is_no_answer(error: httpx.HTTPError) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(NoAnswer) as caught:
        await ask(handler)
    assert str(caught.value) == type(error).__name__


async def test_a_mark_at_its_beginning_is_no_text() -> None:
    reply = await ask(lambda _: httpx.Response(200, content=b'\xef\xbb\xbf{"a": 1}'))
    assert reply.text == '{"a": 1}'


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_of_a_redirect_no_body_is_waited_for(
    encoding: str, autojump_clock: trio.testing.MockClock
) -> None:
    there = {"location": "https://shop.example/product/1/2", "content-encoding": encoding}
    reply = await ask(lambda _: httpx.Response(302, stream=Drip(), headers=there))
    assert (reply.status, reply.headers["location"]) == (302, there["location"])
    assert trio.current_time() < 1


async def test_nor_is_it_given_up_for_its_body_when_the_time_is_nearly_over(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reply = await ask(
        lambda _: httpx.Response(302, stream=Drip(), headers={"location": "/x"}), deadline=0.2
    )
    assert reply.headers["location"] == "/x"


async def test_of_a_redirect_no_more_is_read_than_may_be(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"y" * 101
        await trio.sleep_forever()

    reply = await ask(lambda _: httpx.Response(302, content=endless(), headers={"location": "/x"}))
    assert reply.headers["location"] == "/x"
    assert trio.current_time() == 0


async def test_after_a_redirect_its_connection_is_used_again(nursery: trio.Nursery) -> None:
    connections = 0

    async def lead_on(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        async with stream:
            while await stream.receive_some():
                await stream.send_all(
                    b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n"
                )

    (listener,) = await nursery.start(partial(trio.serve_tcp, lead_on, 0, host="127.0.0.1"))
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    async with HttpClient() as client:
        for _ in range(2):
            reply = await client.request("GET", url, deadline=5, max_body=10)
            assert (reply.status, reply.headers["location"]) == (302, "/next")
    assert connections == 1
    nursery.cancel_scope.cancel()


async def test_a_redirect_whose_body_breaks_off_leads_on_all_the_same(
    nursery: trio.Nursery,
) -> None:
    async def lead_on(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            head = b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 99\r\n\r\n"
            await stream.send_all(head + b"y" * 8)

    (listener,) = await nursery.start(partial(trio.serve_tcp, lead_on, 0, host="127.0.0.1"))
    url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/"
    async with HttpClient() as client:
        reply = await client.request("GET", url, deadline=5, max_body=10)
    assert (reply.status, reply.headers["location"]) == (302, "/next")
    nursery.cancel_scope.cancel()


async def test_bytes_that_are_no_text_are_read_all_the_same() -> None:
    reply = await ask(lambda _: httpx.Response(200, content=b"a\xff\xfeb"))
    assert reply.text.startswith("a")
    assert reply.text.endswith("b")


@pytest.mark.parametrize(
    "charset", ["nonsense", "undefined", "idna", "punycode", "base64", "zip", "utf-16", "\u00e9"]
)
async def test_every_charset_is_taken_for_utf8(charset: str) -> None:
    header = f"text/html; charset={charset}".encode()
    reply = await ask(
        lambda _: httpx.Response(
            200, content="à".encode() + b"\xff", headers=[(b"Content-Type", header)]
        )
    )
    assert reply.text == "à\ufffd"


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/secret\ud83d",
        "https://secret:\ud83d@shop.example/",
        "https://xn--a/secret",
    ],
)
async def test_an_address_that_cannot_be_written_gets_no_answer(url: str) -> None:
    async with HttpClient(httpx.MockTransport(lambda _: httpx.Response(200))) as client:
        with pytest.raises(NoAnswer) as caught:
            await client.request("GET", url, deadline=5, max_body=10)
    assert str(caught.value) == "its address cannot be written in a request"


async def test_nor_does_a_name_that_dns_cannot_hold() -> None:
    async with HttpClient() as client:
        with pytest.raises(NoAnswer, match="cannot be written"):
            await client.request("GET", f"http://{'a' * 64}.example/", deadline=5, max_body=10)
