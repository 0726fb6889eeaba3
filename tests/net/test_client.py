"""Plain HTTP: bounded, honest, and without a memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import trio
import trio.testing

from smartlinkd import __version__
from smartlinkd.net.client import HttpClient, NoAnswer, Reply
from tests.fakes.internet import answer, hang

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


async def test_reply_holds_status_and_text_without_a_byte_order_mark() -> None:
    reply = await ask(lambda _: httpx.Response(201, content="\ufeffcàng".encode()))
    assert (reply.status, reply.text) == (201, "càng")


async def test_requests_name_the_daemon_want_a_plain_body_and_keep_no_cookie() -> None:
    seen: list[httpx.Headers] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(200, headers={"Set-Cookie": "SPC_F=1; Path=/; Domain=shop.example"})

    async with HttpClient(httpx.MockTransport(handler)) as client:
        for _ in range(2):
            await client.request("GET", URL, deadline=5, max_body=10)
    assert [headers.get("cookie") for headers in seen] == [None, None]
    assert seen[0]["user-agent"] == f"smartlinkd/{__version__}"
    assert seen[0]["accept-encoding"] == "identity"


async def test_unreadable_cookie_is_ignored() -> None:
    # The standard library warns of it, and warnings are errors here.
    ageless = f"SPC_F=1; Max-Age={'9' * 400}"
    reply = await ask(lambda _: httpx.Response(200, headers={"Set-Cookie": ageless}))
    assert reply.status == 200


@pytest.mark.parametrize(
    "location",
    ["/x", "https://xn--shpee-jsd.vn/", "http://0177.0.0.1/", "javascript:x", "https://[::1"],
)
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_redirect_is_returned_and_not_followed(location: str, encoding: str) -> None:
    headers = {"Location": location, "Content-Encoding": encoding}
    reply = await ask(lambda _: httpx.Response(302, headers=headers))
    assert (reply.status, reply.headers["location"]) == (302, location)


class Broken(httpx.AsyncByteStream):
    """A body that breaks off."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"x"
        raise httpx.ReadError("it broke off")


@pytest.mark.parametrize("body", [Drip, Broken])
async def test_redirect_whose_body_does_not_end_is_returned_soon(
    body: type[httpx.AsyncByteStream], autojump_clock: trio.testing.MockClock
) -> None:
    headers = {"Location": "/x"}
    reply = await ask(lambda _: httpx.Response(302, headers=headers, stream=body()))
    assert (reply.status, reply.headers["location"], reply.text) == (302, "/x", "")
    assert trio.current_time() < 1


async def test_body_is_read_up_to_its_bound() -> None:
    for size in (100, 101):
        answer = httpx.Response(200, content=b"y" * size)
        assert (await ask(lambda _, answer=answer: answer)).text == "y" * 100


async def test_endless_body_is_left_at_its_bound(autojump_clock: trio.testing.MockClock) -> None:
    drip = Drip()
    reply = await ask(lambda _: httpx.Response(200, stream=drip), max_body=3, deadline=60)
    assert reply.text == "xxx"
    assert drip.sent == 4


async def test_deadline_bounds_the_whole_answer(autojump_clock: trio.testing.MockClock) -> None:
    with pytest.raises(NoAnswer, match="no answer within 5 seconds"):
        await ask(lambda _: httpx.Response(200, stream=Drip()))
    assert trio.current_time() == pytest.approx(5, abs=0.01)


async def test_calls_at_once_wait_for_no_connection(receiver: Any) -> None:
    receiver.usual = hang
    async with HttpClient() as client, trio.open_nursery() as asking:
        get = partial(client.request, "GET", receiver.url(), deadline=60, max_body=1)
        for _ in range(MANY):
            asking.start_soon(get)
        with trio.fail_after(5):
            await receiver.until(MANY)
        asking.cancel_scope.cancel()


async def test_proxy_of_the_environment_is_not_used(
    receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    async with HttpClient() as client:
        assert (await client.request("GET", receiver.url(), deadline=5, max_body=1)).status == 200


async def test_compressed_body_raises_no_answer() -> None:
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
async def test_broken_connection_raises_no_answer_without_details(error: httpx.HTTPError) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    with pytest.raises(NoAnswer) as caught:
        await ask(handler)
    assert str(caught.value) == type(error).__name__


async def test_connection_of_a_redirect_is_used_again(receiver: Any) -> None:
    receiver.usual = answer(302, Location="/next")
    async with HttpClient() as client:
        for _ in range(2):
            reply = await client.request("GET", receiver.url(), deadline=5, max_body=10)
            assert (reply.status, reply.headers["location"]) == (302, "/next")
    assert (len(receiver.calls), receiver.connections) == (2, 1)


@pytest.mark.parametrize(
    "charset", ["nonsense", "undefined", "idna", "punycode", "base64", "zip", "utf-16", "\u00e9"]
)
async def test_body_of_any_charset_is_read_as_utf8(charset: str) -> None:
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
        f"http://{'a' * 64}.example/",
    ],
)
async def test_url_that_cannot_be_written_raises_no_answer(url: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(NoAnswer) as caught:
            await client.request("GET", url, deadline=5, max_body=10)
    assert str(caught.value) == "its address cannot be written in a request"
