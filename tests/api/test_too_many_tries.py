"""The throttle, over HTTP, on a clock that stands still but when it is set forward.

| promised (contract 1) | test |
|---|---|
| 429 with `Retry-After` | `test_after_ten_failures_there_is_a_wait` |
| 10 free failures, then 1 s that doubles to 60 s | `test_the_wait_doubles_up_to_a_minute` |
| per address | `test_one_address_does_not_throttle_another` |
| an IPv6 /64 is one | `test_an_ipv6_network_is_one_address` |
| the forwarded address, of a trusted proxy alone | `test_a_forged_address_is_no_way_around` |
| wrong codes: at most 20 an hour in all, then one a minute | `test_wrong_codes_are_few_in_all` |
| malformed bodies do not count | `test_what_is_malformed_is_no_try[…]` |
| success resets the address | `test_the_right_password_…`, `test_a_right_code_starts_afresh` |
| the owner is not locked out | `test_a_stranger_does_not_lock_the_owner_out` |
| enable and disable count as well | `test_codes_of_a_session_are_tries_too[…]` |
"""

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


async def test_after_ten_failures_there_is_a_wait(mock_clock: MockClock, daemon: Daemon) -> None:
    assert await fail(daemon, 10) == [401] * 10
    answer = await daemon.post(LOGIN, WRONG)
    assert wait_of(answer) == 1
    assert answer.json()["error"] == "too many failed tries; try again in 1 s"
    # the right password is not even looked at: it would tell a guesser which one it was
    assert (await daemon.post(LOGIN, RIGHT)).status_code == 429
    mock_clock.jump(1)
    assert (await daemon.post(LOGIN, RIGHT)).status_code == 200


async def test_the_wait_doubles_up_to_a_minute(mock_clock: MockClock, daemon: Daemon) -> None:
    await fail(daemon, 10)
    waits = []
    for _ in range(8):
        waits.append(wait_of(await daemon.post(LOGIN, WRONG)))
        mock_clock.jump(waits[-1])
        assert await fail(daemon, 1) == [401]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_try_during_the_wait_does_not_make_it_longer(
    mock_clock: MockClock, daemon: Daemon
) -> None:
    await fail(daemon, 13)
    assert await fail(daemon, 20) == [429] * 20
    mock_clock.jump(1)
    assert await fail(daemon, 1) == [401]


async def test_the_right_password_starts_afresh(mock_clock: MockClock, daemon: Daemon) -> None:
    await fail(daemon, 9)
    await daemon.login()
    assert await fail(daemon, 11) == [401] * 10 + [429]


async def test_one_address_does_not_throttle_another(mock_clock: MockClock, start: Start) -> None:
    daemon = await start(**PROXY)
    assert (await fail(daemon, 11, X_Forwarded_For="203.0.113.7"))[-1] == 429
    assert await fail(daemon, 1, X_Forwarded_For="203.0.113.8") == [401]
    assert await fail(daemon, 1) == [401]


async def test_an_ipv6_network_is_one_address(mock_clock: MockClock, start: Start) -> None:
    daemon = await start(**PROXY)
    await fail(daemon, 10, X_Forwarded_For="2001:db8:1:2::1")
    assert await fail(daemon, 1, X_Forwarded_For="2001:db8:1:2:ffff::9") == [429]
    assert await fail(daemon, 1, X_Forwarded_For="2001:db8:1:3::1") == [401]


async def test_a_forged_address_is_no_way_around(mock_clock: MockClock, daemon: Daemon) -> None:
    tries = [(await fail(daemon, 1, X_Forwarded_For=f"203.0.113.{n}"))[0] for n in range(11)]
    assert tries == [401] * 10 + [429]


async def test_a_stranger_does_not_lock_the_owner_out(start: Start) -> None:
    daemon = await start(**PROXY)
    for n in range(4):
        await fail(daemon, 11, X_Forwarded_For=f"203.0.113.{n}")
    assert (await daemon.post(LOGIN, RIGHT, X_Forwarded_For="198.51.100.1")).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'{"password": 1}', b"{}", b'{"password": "' + b"x" * 1025 + b'"}'],
    ids=["no JSON", "no object", "no string", "no password", "too long to be one"],
)
async def test_what_is_malformed_is_no_try(daemon: Daemon, body: bytes) -> None:
    tries = [(await daemon.post(LOGIN, body)).status_code for _ in range(12)]
    assert tries == [400] * 12
    assert await fail(daemon, 10) == [401] * 10


# Codes


@pytest.mark.parametrize("path", ["enable", "disable"])
async def test_codes_of_a_session_are_tries_too(
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


async def test_half_a_login_neither_counts_nor_makes_up_for_failures(
    mock_clock: MockClock, daemon: Daemon, token: str, phone: Phone
) -> None:
    await phone.enable(daemon, token)
    await fail(daemon, 9)
    await daemon.begin_login()
    assert await fail(daemon, 2) == [401, 429]


async def test_a_right_code_starts_afresh(
    mock_clock: MockClock, daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await phone.enable(daemon, token)
    await fail(daemon, 9)
    body = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/verify-mfa", body)).status_code == 200
    assert await fail(daemon, 11) == [401] * 10 + [429]


async def test_wrong_codes_are_few_in_all(
    mock_clock: MockClock, start: Start, phone: Phone
) -> None:
    daemon = await start(**PROXY)
    secret = await phone.enable(daemon, await daemon.login())
    wrong = phone.wrong(secret)

    async def verify(code: str, address: str) -> Response:
        """From an address whose own tries are still free."""
        found = await daemon.post(LOGIN, RIGHT, X_Forwarded_For=address)
        body = {"tempToken": found.json()["tempToken"], "code": code}
        return await daemon.post("/api/auth/verify-mfa", body, X_Forwarded_For=address)

    tries = [(await verify(wrong, f"203.0.113.{n // 4}")).status_code for n in range(20)]
    assert tries == [401] * 20
    assert wait_of(await verify(phone.shows(secret), "198.51.100.1")) == 60
    mock_clock.jump(60)
    assert (await verify(wrong, "198.51.100.2")).status_code == 401
    assert wait_of(await verify(wrong, "198.51.100.3")) == 60
    mock_clock.jump(60)
    assert (await verify(phone.shows(secret), "198.51.100.4")).status_code == 200
    # an hour later twenty are free again
    mock_clock.jump(3600)
    tries = [(await verify(wrong, f"192.0.2.{n // 4}")).status_code for n in range(20)]
    assert tries == [401] * 20
