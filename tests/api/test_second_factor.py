"""The second factor over HTTP, with codes from another implementation."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from trio.testing import MockClock

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start

PASSWORD = {"password": "correct horse battery staple"}
DAY = 86_400


async def begin(daemon: Daemon, token: str) -> str:
    """Return the secret of a new setup."""
    answer = await daemon.get("/api/auth/2fa/setup", token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


async def is_on(daemon: Daemon) -> bool:
    """Return True if a login asks for a code."""
    return bool((await daemon.post("/api/auth/login", PASSWORD)).json()["mfaRequired"])


async def verify(daemon: Daemon, code: str) -> int:
    body = {"tempToken": await daemon.begin_login(), "code": code}
    return (await daemon.post("/api/auth/verify-mfa", body)).status_code


async def test_setup_gives_a_secret_and_its_qr_code(daemon: Daemon, token: str) -> None:
    body = (await daemon.get("/api/auth/2fa/setup", token=token)).json()
    assert set(body) == {"ok", "secret", "qrCode"}
    assert len(base64.b32decode(body["secret"])) == 20
    scheme, _, png = body["qrCode"].partition("base64,")
    assert scheme == "data:image/png;"
    read = await trio.run_process(
        ["zbarimg", "--quiet", "--raw", "png:-"],
        stdin=base64.b64decode(png),
        capture_stdout=True,
    )
    uri = urlsplit(read.stdout.decode().strip())
    assert (uri.scheme, uri.netloc) == ("otpauth", "totp")
    assert parse_qs(uri.query)["secret"] == [body["secret"]]


async def test_head_does_not_replace_the_secret_of_a_setup(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await begin(daemon, token)
    answer = await daemon.ask("HEAD", "/api/auth/2fa/setup", token=token)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    body = {"secret": secret, "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/2fa/enable", body, token=token)).status_code == 200


async def test_enable_switches_second_factor_on(daemon: Daemon, token: str, phone: Phone) -> None:
    secret = await begin(daemon, token)
    body = {"secret": secret, "code": phone.shows(secret)}
    answer = await daemon.post("/api/auth/2fa/enable", body, token=token)
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["message"]
    assert await is_on(daemon)
    assert (await daemon.get("/api/status", token=token)).json()["secondFactor"] is True


async def test_secret_of_a_setup_is_good_for_ten_minutes(
    mock_clock: MockClock, daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await begin(daemon, token)
    mock_clock.jump(600)
    body = {"secret": secret, "code": phone.shows(secret)}
    late = await daemon.post("/api/auth/2fa/enable", body, token=token)
    assert late.status_code == 400
    assert "10 minutes" in late.json()["error"]
    secret = await begin(daemon, token)
    mock_clock.jump(590)
    body = {"secret": secret, "code": phone.shows(secret)}
    in_time = await daemon.post("/api/auth/2fa/enable", body, token=token)
    assert in_time.status_code == 200


async def test_disable_switches_second_factor_off_and_ends_half_a_login(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await phone.enable(daemon, token)
    waiting = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret, ahead=30)}
    answer = await daemon.post("/api/auth/2fa/disable", {"code": phone.shows(secret)}, token=token)
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["message"]
    assert (await daemon.get("/api/status", token=await daemon.login())).status_code == 200
    # a login half done is of no use any more
    assert (await daemon.post("/api/auth/verify-mfa", waiting)).status_code == 403


@pytest.mark.parametrize("path", ["enable", "disable"])
async def test_wrong_code_changes_nothing(
    daemon: Daemon, token: str, phone: Phone, path: str
) -> None:
    secret = await (phone.enable if path == "disable" else begin)(daemon, token)
    body = {"secret": secret, "code": phone.wrong(secret)}
    answer = await daemon.post(f"/api/auth/2fa/{path}", body, token=token)
    assert answer.status_code == 401
    assert answer.json()["error"].startswith("code: ")
    assert await is_on(daemon) is (path == "disable")


async def test_used_code_is_refused_after_a_restart(start: Start, phone: Phone) -> None:
    first = await start()
    secret = await phone.enable(first, await first.login())
    assert await verify(first, phone.shows(secret)) == 200
    await first.stop()
    second = await start()
    assert await verify(second, phone.shows(secret)) == 401
    assert await verify(second, phone.shows(secret, ahead=30)) == 200


async def test_clock_that_was_ahead_locks_nobody_out(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await phone.enable(daemon, token)
    phone.wall.ahead += DAY
    assert await verify(daemon, phone.shows(secret)) == 200
    phone.wall.ahead -= DAY
    assert await verify(daemon, phone.shows(secret)) == 200
