"""The main app: paths, methods, the size of bodies, and CORS for the extension."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.http_server.app import BODY_SECONDS

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

EXTENSION = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
SAFARI = "safari-web-extension://0B2A7AC6-6D4F-4A3E-9C0A-0123456789AB"
COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"


# Paths and methods


async def test_unknown_path_is_404(daemon: Daemon) -> None:
    for path in [
        "/api",
        "/api/auth/login/",
        "/api//health",
        "/API/HEALTH",
        "/%ff",
        "/api/health%00",
        "/favicon.ico",
        "/static/x",
        "/api/auth/../health",
        "/api/health;x",
        "/%0d%0aX-Header:%20x",
        "/crews",
        "/inputs",
    ]:
        head, _, body = (await daemon.ask_raw("GET", path)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404 "), path
        assert json.loads(body)["ok"] is False, path


ALLOWED = {
    **dict.fromkeys(
        ("/api/auth/login", "/api/auth/verify-mfa", "/api/sync-cookie-local", "/api/convert"),
        "POST",
    ),
    **dict.fromkeys(
        ("/api/auth/2fa/setup", "/api/health", "/livez", "/readyz", "/api/status", "/metrics",
         "/openapi.json", "/docs"),
        "GET, HEAD",
    ),
    "/api/sync-cookie": "GET, HEAD, POST",
}  # fmt: skip


async def test_other_method_is_405_with_allow(daemon: Daemon) -> None:
    for path, allowed in ALLOWED.items():
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
            if method not in allowed:
                answer = await daemon.ask(method, path)
                assert answer.status_code == 405, method
                assert answer.headers["Allow"] == allowed, path


# The extension


PREFLIGHT = {
    "Access_Control_Request_Method": "POST",
    "Access_Control_Request_Headers": "authorization,content-type",
}


async def test_preflight_of_the_extension_is_204(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    daemon = await start(cookie={"extension_origins": [SAFARI, EXTENSION]})
    for path in ("/api/sync-cookie", "/api/sync-cookie-local"):
        for origin in (EXTENSION, SAFARI, SAFARI.lower()):
            answer = await daemon.ask("OPTIONS", path, Origin=origin, **PREFLIGHT)
            assert answer.status_code == 204, path
            assert answer.content == b"", path
            assert answer.headers["Access-Control-Allow-Origin"] == origin, path
            allowed = answer.headers["Access-Control-Allow-Headers"]
            assert allowed == "Authorization, Content-Type", path
            assert "Access-Control-Allow-Credentials" not in answer.headers, path
            assert "Content-Length" not in answer.headers, path  # RFC 9110 section 8.6
            assert "Origin" in answer.headers["Vary"], path
            synced = await daemon.post(path, {"cookie": COOKIE}, Origin=origin)
            assert synced.status_code == 200, path
            assert synced.headers["Access-Control-Allow-Origin"] == origin, path
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_other_origin_has_neither_a_preflight_nor_cors_headers(start: Start) -> None:
    daemon = await start(cookie={"extension_origins": [EXTENSION]})
    asks = {"Origin": EXTENSION, **PREFLIGHT}
    for path, headers in [
        ("/api/sync-cookie", asks | {"Origin": SAFARI}),
        ("/api/sync-cookie", asks | {"Origin": "https://evil.example"}),
        ("/api/sync-cookie", asks | {"Origin": "null"}),
        ("/api/sync-cookie", asks | {"Origin": EXTENSION + ".evil.example"}),
        ("/api/sync-cookie", {"Origin": EXTENSION}),
        ("/api/sync-cookie", PREFLIGHT),
        ("/api/convert", asks),
        ("/api/auth/login", asks),
    ]:
        answer = await daemon.ask("OPTIONS", path, **headers)
        assert answer.status_code == 405, path
        assert answer.headers["Allow"] == ALLOWED[path], path
    for origin, path in [
        (SAFARI, "/api/sync-cookie"),
        ("https://evil.example", "/api/sync-cookie"),
        (EXTENSION, "/api/health"),
        (EXTENSION, "/api/status"),
        (EXTENSION, "/metrics"),
    ]:
        answer = await daemon.get(path, Origin=origin)
        assert not [name for name in answer.headers if name.startswith("access-control")], origin


async def test_extension_may_read_every_answer(start: Start) -> None:
    cookie = {"extension_origins": [EXTENSION], "open_to": []}
    daemon = await start(cookie=cookie, server={"max_body": 4096})
    session = await daemon.login()
    for method, path, token, body, status in [
        ("POST", "/api/sync-cookie-local", "", {"cookie": COOKIE}, 403),
        ("POST", "/api/sync-cookie", session, {"cookie": "a" * 5000}, 413),
        ("GET", "/api/sync-cookie", "", None, 403),
        ("PUT", "/api/sync-cookie", session, None, 405),
    ]:
        answer = await daemon.ask(method, path, body, token=token, Origin=EXTENSION)
        assert answer.status_code == status
        assert answer.headers["Access-Control-Allow-Origin"] == EXTENSION
        assert answer.headers["Access-Control-Expose-Headers"] == "Retry-After, X-Request-Id"


async def test_body_may_take_longer_than_its_answer(daemon: Daemon, mock_clock: MockClock) -> None:
    head = "POST /api/sync-cookie HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    body = json.dumps({"cookie": COOKIE}).encode()
    async with await trio.open_tcp_stream("127.0.0.1", daemon.port) as stream:
        await stream.send_all(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:5])
        await wait_all_tasks_blocked()
        mock_clock.jump(BODY_SECONDS - 1)
        await wait_all_tasks_blocked()
        await stream.send_all(body[5:])
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 200 ")
