"""Login over HTTP. The rules of tokens are in tests/auth and tests/contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start, Wall

DAY = 86_400


async def test_password_alone_gives_a_session(daemon: Daemon) -> None:
    answer = await daemon.post("/api/auth/login", {"password": "correct horse battery staple"})
    assert answer.status_code == 200
    body = answer.json()
    assert body == {"ok": True, "mfaRequired": False, "token": body["token"]}
    assert (await daemon.get("/api/status", token=body["token"])).status_code == 200


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


@pytest.mark.parametrize(
    ("header", "status"),
    [(header, 403) for header in ("Bearer", "Bearer ", "Basic {}", "{}", "Bearer{}", "Bearer {} x")]
    + [(header, 200) for header in ("Bearer {}", "bearer {}", "BEARER {}")],
)
async def test_authorization_is_the_scheme_bearer_and_a_token(
    daemon: Daemon, token: str, header: str, status: int
) -> None:
    request = (
        f"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: {header.format(token)}\r\n\r\n"
    )
    assert (await daemon.raw(request.encode())).startswith(b"HTTP/1.1 %d " % status)


async def test_session_ends_after_seven_days(wall: Wall, daemon: Daemon) -> None:
    token = await daemon.login()
    wall.ahead = 7 * DAY - 1
    assert (await daemon.get("/api/status", token=token)).status_code == 200
    wall.ahead = 7 * DAY
    assert (await daemon.get("/api/status", token=token)).status_code == 403


async def test_password_with_second_factor_gives_only_a_temporary_token(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    await phone.enable(daemon, token)
    body = (
        await daemon.post("/api/auth/login", {"password": "correct horse battery staple"})
    ).json()
    assert body == {"ok": True, "mfaRequired": True, "tempToken": body["tempToken"]}
    assert (await daemon.get("/api/status", token=body["tempToken"])).status_code == 403


async def test_temporary_token_ends_after_five_minutes(daemon: Daemon, phone: Phone) -> None:
    secret = await phone.enable(daemon, await daemon.login())
    late, in_time = await daemon.begin_login(), await daemon.begin_login()
    phone.wall.ahead += 299
    body = {"tempToken": in_time, "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/verify-mfa", body)).status_code == 200
    phone.wall.ahead += 1
    body = {"tempToken": late, "code": phone.shows(secret, ahead=30)}
    answer = await daemon.post("/api/auth/verify-mfa", body)
    assert answer.status_code == 403
    assert "expired" in answer.json()["error"]


async def test_verify_mfa_without_second_factor_is_403(daemon: Daemon) -> None:
    body = {"tempToken": await daemon.login(), "code": "123456"}
    assert (await daemon.post("/api/auth/verify-mfa", body)).status_code == 403


async def test_clock_that_starts_in_1970_does_not_matter(wall: Wall, start: Start) -> None:
    """A machine without a battery: its clock begins in 1970 and jumps ahead when it is set."""
    wall.began = 100.0
    daemon = await start()
    token = await daemon.login()
    assert (await daemon.get("/api/status", token=token)).status_code == 200
    wall.ahead = 1_700_000_000.0
    assert (await daemon.get("/api/status", token=token)).status_code == 403
    assert (await daemon.get("/api/status", token=await daemon.login())).status_code == 200
