"""The throttle over HTTP, by client addresses. Its rules are in tests/auth and tests/contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from httpx import Response
from trio.testing import MockClock

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start

LOGIN = "/api/auth/login"
RIGHT = {"password": "correct horse battery staple"}
WRONG = {"password": "wrong"}
PROXY = {"server": {"trusted_proxies": ["127.0.0.1"]}}


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


async def test_stranger_does_not_lock_the_owner_out(start: Start) -> None:
    daemon = await start(**PROXY)
    for n in range(4):
        await fail(daemon, 11, X_Forwarded_For=f"203.0.113.{n}")
    assert (await daemon.post(LOGIN, RIGHT, X_Forwarded_For="198.51.100.1")).status_code == 200


@pytest.mark.parametrize("path", ["enable", "disable"])
async def test_wrong_codes_of_a_session_are_throttled(
    mock_clock: MockClock, daemon: Daemon, token: str, phone: Phone, path: str
) -> None:
    if path == "disable":
        secret = await phone.enable(daemon, token)
    else:
        secret = (await daemon.get("/api/auth/2fa/setup", token=token)).json()["secret"]
    body = {"secret": secret, "code": phone.wrong(secret)}
    malformed = body | {"code": "12345"}
    url = f"/api/auth/2fa/{path}"
    for _ in range(12):
        assert (await daemon.post(url, malformed, token=token)).status_code == 400
    for _ in range(10):
        assert (await daemon.post(url, body, token=token)).status_code == 401
    assert wait_of(await daemon.post(url, body, token=token)) == 1
    # the address is the same one that logs in
    assert (await daemon.post(LOGIN, WRONG)).status_code == 429
