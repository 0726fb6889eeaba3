"""The second factor of a daemon under test: its set-up, its codes, and requests with them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyotp

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon

STEP = 30
"""Seconds for which an authenticator app shows a code. The daemon accepts the next code, too."""


def code_of(totp: pyotp.TOTP, *, ahead: int = 0) -> str:
    """Return the code that an app shows in `ahead` seconds."""
    return totp.at(int(time.time()) + ahead)


async def set_up(daemon: Daemon) -> pyotp.TOTP:
    """Begin a set-up. The secret joins the daemon's secrets."""
    answer = await daemon.ask("GET", "/api/auth/2fa/setup", token=await daemon.login())
    assert answer.status_code == 200, answer.text
    daemon.secrets.add(answer.json()["secret"])
    return pyotp.TOTP(answer.json()["secret"])


async def post(daemon: Daemon, path: str, **body: str) -> tuple[int, str]:
    """Send a request with the session. Return the status, and the error's text ("" without one)."""
    answer = await daemon.ask("POST", f"/api/auth/{path}", body, token=await daemon.login())
    return answer.status_code, answer.json().get("error", "")
