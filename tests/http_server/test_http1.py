"""Hostile requests, of which some end the process with hypercorn and quart-trio as they ship.

Bodies without a clear end are in tests/security/test_http.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.http_server.conftest import Serving

WEBSOCKET = (
    b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


HOSTILE = {
    "a WebSocket upgrade with a byte behind it": WEBSOCKET + b"\r\nx",
    "a WebSocket upgrade with a body": WEBSOCKET + b"Content-Length: 3\r\n\r\nabc",
    "an upgrade to h2c with malformed settings": (
        b"GET /small HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n"
    ),
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "a target that is no path": b"GET ?a HTTP/1.1\r\nHost: a\r\n\r\n",
    "a target that is no URL": b"GET http://[/small HTTP/1.1\r\nHost: a\r\n\r\n",
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "a host that is no host name": b"GET /nowhere HTTP/1.1\r\nHost: %b\r\n\r\n" % (b"a" * 99),
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    "a malformed chunk": (
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "half a head": b"GET /small HTTP/1.1\r\nHo",
    "more body than it says": b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na\x00b",
    "a body that is too large": (
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
    ),
    "a head that is too large": b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 99_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("leaves_at_once", [False, True])
async def test_hostile_clients_hurt_nobody(
    serving: Serving, caplog: pytest.LogCaptureFixture, *, leaves_at_once: bool
) -> None:
    async with serving(idle_seconds=0.1) as server:
        attack = server.send_and_close if leaves_at_once else server.send_and_read
        for name, data in HOSTILE.items():
            await attack(data)
            assert await server.is_answered(), name
            assert "was ended by" not in caplog.text, name  # refused, not merely survived


@pytest.mark.parametrize("asked", ["POST /nowhere", "POST /small", "GET /small", "POST /echo"])
async def test_malformed_chunk_is_400_for_read_and_unread_bodies(
    serving: Serving, asked: str
) -> None:
    request = f"{asked} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    async with serving() as server:
        # Whose turn it is, the refusal's or the application's, is trio's dice.
        for _ in range(20):
            said = await server.send_and_read(request.encode())
            assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
