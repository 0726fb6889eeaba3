"""Login, the second factor, sessions and the throttle over HTTP.

The rules of tokens and codes are in tests/auth and tests/contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from httpx import Response
from trio.testing import MockClock

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start


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

"""A request body for each operation that has one and takes a session."""


async def is_good(daemon: Daemon, token: str) -> bool:
    return (await daemon.get("/api/status", token=token)).status_code == 200


async def test_restart_without_systemd_forgets_the_cookie(start: Start) -> None:
    first = await start()
    await first.post("/api/sync-cookie", {"cookie": COOKIE})
    await first.stop()
    assert (await (await start()).get("/api/sync-cookie")).json()["ok"] is False


LOGIN = "/api/auth/login"
RIGHT = {"password": "correct horse battery staple"}
WRONG = {"password": "wrong"}


async def fail(daemon: Daemon, times: int, **headers: str) -> list[int]:
    return [(await daemon.post(LOGIN, WRONG, **headers)).status_code for _ in range(times)]


def wait_of(answer: Response) -> int:
    assert answer.status_code == 429, answer.text
    return int(answer.headers["Retry-After"])


async def test_forged_address_does_not_evade_the_throttle(
    mock_clock: MockClock, daemon: Daemon
) -> None:
    tries = [(await fail(daemon, 1, X_Forwarded_For=f"203.0.113.{n}"))[0] for n in range(11)]
    assert tries == [401] * 10 + [429]
