"""The `Authorization` header, and the client address of the throttle.

Tokens, codes and the throttle are tested in tests/auth and tests/contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trio.testing import MockClock

if TYPE_CHECKING:
    from tests.api.conftest import Daemon


async def test_authorization_is_the_scheme_bearer_and_a_token(daemon: Daemon, token: str) -> None:
    statuses = {
        **dict.fromkeys(("Bearer", "Bearer ", "Basic {}", "{}", "Bearer{}", "Bearer {} x"), 403),
        **dict.fromkeys(("Bearer {}", "bearer {}", "BEARER {}"), 200),
    }
    for header, status in statuses.items():
        answer = await daemon.ask_raw("GET", "/api/status", header.format(token))
        assert answer.startswith(b"HTTP/1.1 %d " % status), header


async def test_forged_address_does_not_evade_the_throttle(
    mock_clock: MockClock, daemon: Daemon
) -> None:
    tries = [
        await daemon.post(
            "/api/auth/login", {"password": "wrong"}, X_Forwarded_For=f"203.0.113.{n}"
        )
        for n in range(11)
    ]
    assert [answer.status_code for answer in tries] == [401] * 10 + [429]
