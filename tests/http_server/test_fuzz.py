"""A few hundred requests, each wrong in some way: every next client is answered."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
import trio

from tests.http_server.mutation import mutated

if TYPE_CHECKING:
    from smartlinkd.http_server import GuardedQuart
    from tests.http_server.conftest import Serving

REQUESTS = 400
SEED = 20260101
CLIENTS = 4  # at once, so that faults meet requests in progress

WELL_FORMED = [
    b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /small HTTP/1.0\r\n\r\n",
    b"HEAD /small?a=b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789",
    b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    b"POST /unread HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://user@[::1]:1/%2e%2e/%ff?%00 HTTP/1.1\r\nHost: \xff\r\nCookie: a=b;;=\r\n\r\n",
]


async def test_no_mutated_request_hurts_the_next_client(
    serving: Serving, app: GuardedQuart, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(SEED)
    app.config["BODY_TIMEOUT"] = 0.02
    requests = [(mutated(WELL_FORMED, chance), chance.random() < 0.5) for _ in range(REQUESTS)]

    async with serving(idle_seconds=0.02) as server:

        async def client() -> None:
            while requests:
                data, reads = requests.pop()
                await (server.send_and_read if reads else server.send_and_close)(data)

        async with trio.open_nursery() as nursery:
            for _ in range(CLIENTS):
                nursery.start_soon(client)
        assert await server.is_answered()
    assert "was ended by" not in caplog.text  # every fault was foreseen
    assert "Error in ASGI Framework" not in caplog.text
