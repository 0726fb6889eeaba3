"""Login, the second factor, sessions and the throttle over HTTP.

The rules of tokens and codes are in tests/auth and tests/contract.
"""

from __future__ import annotations

import stat
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from trio.testing import MockClock

from smartlinkd.admin.control_socket import call

if TYPE_CHECKING:
    from tests.api.conftest import Conformity, Daemon, Phone, Start


@pytest.mark.parametrize("password", ["wrong", "", "Correct horse battery staple", "🐴" * 1024])
async def test_wrong_password_is_401(daemon: Daemon, password: str) -> None:
    answer = await daemon.post("/api/auth/login", {"password": password})
    assert answer.status_code == 401
    assert answer.json()["error"] == "password: is wrong"


async def test_password_over_the_documented_length_is_400(daemon: Daemon) -> None:
    answer = await daemon.post("/api/auth/login", {"password": "🐴" * 1025})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("password: is longer than 1024 characters")
    schemas = (await daemon.get("/openapi.json")).json()["components"]["schemas"]
    assert schemas["LoginRequest"]["properties"]["password"]["maxLength"] == 1024


async def test_authorization_is_the_scheme_bearer_and_a_token(daemon: Daemon, token: str) -> None:
    statuses = {
        **dict.fromkeys(("Bearer", "Bearer ", "Basic {}", "{}", "Bearer{}", "Bearer {} x"), 403),
        **dict.fromkeys(("Bearer {}", "bearer {}", "BEARER {}"), 200),
    }
    for header, status in statuses.items():
        request = (
            f"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: {header.format(token)}\r\n\r\n"
        )
        answer = await daemon.raw(request.encode())
        assert answer.startswith(b"HTTP/1.1 %d " % status), header


async def begin(daemon: Daemon, token: str) -> str:
    """Return the secret of a new setup."""
    answer = await daemon.get("/api/auth/2fa/setup", token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


async def test_head_does_not_replace_the_secret_of_a_setup(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await begin(daemon, token)
    answer = await daemon.ask("HEAD", "/api/auth/2fa/setup", token=token)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    body = {"secret": secret, "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/2fa/enable", body, token=token)).status_code == 200


COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"

BODIES: dict[str, dict[str, Any]] = {
    "/api/auth/2fa/enable": {"secret": "s", "code": "123456"},
    "/api/auth/2fa/disable": {"code": "123456"},
    "/api/auth/revoke": {"keys": True},
    "/api/sync-cookie": {"cookie": COOKIE},
    "/api/sync-cookie-local": {"cookie": COOKIE},
    "/api/convert": {"links": ["https://example.org/"]},
    "/api/extract": {"text": ""},
    "/api/convert-text": {"text": ""},
    "/api/keys": {"name": "a program", "scopes": ["convert"]},
    "/api/crews/token": {"crew": "echo"},
    "/api/crews/token/rotate": {"crew": "echo"},
}

"""A request body for each operation that has one and takes a session."""


async def test_restart_without_systemd_forgets_the_cookie(start: Start) -> None:
    first = await start()
    await first.post("/api/sync-cookie", {"cookie": COOKIE})
    await first.stop()
    assert (await (await start()).get("/api/sync-cookie")).json()["ok"] is False


@pytest.mark.parametrize("path", BODIES)
async def test_session_that_ends_while_the_body_arrives_is_403(start: Start, path: str) -> None:
    crew = {"name": "echo", "runner": "command", "command": ["/bin/echo"]}
    daemon = await start(cookie={"open_to": []}, crews=[crew])
    token = await daemon.login()
    revoke = partial(call, daemon.state, "tokens revoke")
    answer = await daemon.post_late(path, token, BODIES[path], revoke)
    assert answer.startswith(b"HTTP/1.1 403 ")
    token = await daemon.login()
    assert (await daemon.get("/api/sync-cookie", token=token)).json()["ok"] is False


async def test_every_operation_with_a_body_and_a_session_is_tried(
    daemon: Daemon, conformity: Conformity
) -> None:
    taking = {
        path
        for _, path, operation in conformity.operations()
        if "requestBody" in operation and operation["security"] and not path.startswith("/crews/")
    }
    assert taking == set(BODIES)


async def test_state_files_are_private(daemon: Daemon, token: str) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in daemon.state.iterdir()}
    assert modes.pop("runs") == 0o700
    assert {"auth.json", "signing-secret", "crew-master-secret", "journal.sqlite3"} < set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(daemon.state.stat().st_mode) == 0o700


LOGIN = "/api/auth/login"
WRONG = {"password": "wrong"}


async def fail(daemon: Daemon, times: int, **headers: str) -> list[int]:
    return [(await daemon.post(LOGIN, WRONG, **headers)).status_code for _ in range(times)]


async def test_forged_address_does_not_evade_the_throttle(
    mock_clock: MockClock, daemon: Daemon
) -> None:
    tries = [(await fail(daemon, 1, X_Forwarded_For=f"203.0.113.{n}"))[0] for n in range(11)]
    assert tries == [401] * 10 + [429]
