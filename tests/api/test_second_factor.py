"""The second factor, over HTTP, with codes from another implementation.

| promised | test |
|---|---|
| seed 2, secret and qrCode | `test_setup_gives_a_secret_and_its_qr_code` |
| seed 3, setup: disabled → disabled | `test_setup_alone_changes_nothing` |
| seed 3, enable: disabled → enabled | `test_enable_switches_it_on` |
| seed 3, disable: enabled → disabled | `test_disable_switches_it_off` |
| seed 6 and 7, 401 | `test_a_wrong_code_changes_nothing[enable]`, `…[disable]` |
| seed 8, 6 digits | `test_this_is_no_code[…]` |
| contract, codes: one step of skew | `test_a_code_of_this_step[…]` |
| contract, codes: accepted once | `test_a_code_is_good_once`, `…_over_a_restart` |
| contract, codes: a clock that jumps | `test_a_clock_that_was_ahead_locks_nobody_out` |
| contract, setup and enable while enabled | `test_while_enabled_it_is_400[…]` |
| contract, disable while disabled | `test_disable_while_disabled_is_400` |
| contract, enable with what setup did not issue | `test_enable_wants_the_latest_secret[…]` |
| contract, issued over 10 minutes ago | `test_a_secret_is_good_for_ten_minutes` |
| contract, ends all sessions but one | `test_enable_ends_all_sessions_but_the_one_that_did_it` |
| contract, survives a restart | `test_it_survives_a_restart` |
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.admin.control_socket import call

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start

PASSWORD = {"password": "correct horse battery staple"}
DAY = 86_400


async def begin(daemon: Daemon, token: str) -> str:
    """The secret of a setup."""
    answer = await daemon.get("/api/auth/2fa/setup", token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


async def is_on(daemon: Daemon) -> bool:
    """Whether a login asks for a code."""
    return bool((await daemon.post("/api/auth/login", PASSWORD)).json()["mfaRequired"])


async def verify(daemon: Daemon, code: str) -> int:
    body = {"tempToken": await daemon.begin_login(), "code": code}
    return (await daemon.post("/api/auth/verify-mfa", body)).status_code


# Setup


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


async def test_setup_alone_changes_nothing(daemon: Daemon, token: str) -> None:
    await begin(daemon, token)
    assert not await is_on(daemon)
    assert (await daemon.get("/api/status", token=token)).json()["secondFactor"] is False


async def test_each_setup_gives_another_secret(daemon: Daemon, token: str) -> None:
    assert await begin(daemon, token) != await begin(daemon, token)


async def test_head_leaves_the_secret_that_is_being_scanned(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await begin(daemon, token)
    answer = await daemon.ask("HEAD", "/api/auth/2fa/setup", token=token)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET")
    body = {"secret": secret, "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/2fa/enable", body, token=token)).status_code == 200


# Enable


async def test_enable_switches_it_on(daemon: Daemon, token: str, phone: Phone) -> None:
    secret = await begin(daemon, token)
    body = {"secret": secret, "code": phone.shows(secret)}
    answer = await daemon.post("/api/auth/2fa/enable", body, token=token)
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["message"]
    assert await is_on(daemon)
    assert (await daemon.get("/api/status", token=token)).json()["secondFactor"] is True


@pytest.mark.parametrize("which", ["an earlier one", "one of its own", "none before", "used"])
async def test_enable_wants_the_latest_secret(
    daemon: Daemon, token: str, phone: Phone, which: str
) -> None:
    given = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
    if which in ("an earlier one", "used"):
        given = await begin(daemon, token)
    if which in ("an earlier one", "one of its own"):
        await begin(daemon, token)
    body = {"secret": given, "code": phone.shows(given)}
    if which == "used":
        await daemon.post("/api/auth/2fa/enable", body, token=token)
        await call(daemon.state, "2fa off")
        body["code"] = phone.shows(given, ahead=30)
    answer = await daemon.post("/api/auth/2fa/enable", body, token=token)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("secret: ")
    assert not await is_on(daemon)


async def test_a_secret_is_good_for_ten_minutes(
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


async def test_enable_ends_all_sessions_but_the_one_that_did_it(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    others = [await daemon.login(), await daemon.login()]
    await phone.enable(daemon, token)
    for other in others:
        assert (await daemon.get("/api/status", token=other)).status_code == 403
    assert (await daemon.get("/api/status", token=token)).status_code == 200


@pytest.mark.parametrize("path", ["setup", "enable"])
async def test_while_enabled_it_is_400(daemon: Daemon, token: str, phone: Phone, path: str) -> None:
    secret = await phone.enable(daemon, token)
    answer = (
        await daemon.get("/api/auth/2fa/setup", token=token)
        if path == "setup"
        else await daemon.post(
            "/api/auth/2fa/enable", {"secret": secret, "code": phone.shows(secret)}, token=token
        )
    )
    assert answer.status_code == 400
    assert "switched on already" in answer.json()["error"]
    assert (
        await verify(daemon, phone.shows(secret)) == 200
    )  # the same secret, and its code not spent


# Disable


async def test_disable_switches_it_off(daemon: Daemon, token: str, phone: Phone) -> None:
    secret = await phone.enable(daemon, token)
    waiting = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret, ahead=30)}
    answer = await daemon.post("/api/auth/2fa/disable", {"code": phone.shows(secret)}, token=token)
    assert answer.status_code == 200
    assert answer.json()["ok"] is True
    assert answer.json()["message"]
    assert (await daemon.get("/api/status", token=await daemon.login())).status_code == 200
    # a login half done is of no use any more
    assert (await daemon.post("/api/auth/verify-mfa", waiting)).status_code == 403


async def test_disable_while_disabled_is_400(daemon: Daemon, token: str) -> None:
    answer = await daemon.post("/api/auth/2fa/disable", {"code": "123456"}, token=token)
    assert answer.status_code == 400
    assert "switched off already" in answer.json()["error"]


# Codes


@pytest.mark.parametrize("path", ["enable", "disable"])
async def test_a_wrong_code_changes_nothing(
    daemon: Daemon, token: str, phone: Phone, path: str
) -> None:
    secret = await (phone.enable if path == "disable" else begin)(daemon, token)
    body = {"secret": secret, "code": phone.wrong(secret)}
    answer = await daemon.post(f"/api/auth/2fa/{path}", body, token=token)
    assert answer.status_code == 401
    assert answer.json()["error"].startswith("code: ")
    assert await is_on(daemon) is (path == "disable")


@pytest.mark.parametrize("path", ["verify-mfa", "2fa/enable", "2fa/disable"])
async def test_this_is_no_code(daemon: Daemon, token: str, path: str) -> None:
    for code in ("", "12345", "1234567", "12345a", "123 4567", "123.456", "-12345", " " * 100_000):
        body = {"tempToken": "t", "secret": "s", "code": code}
        answer = await daemon.post(f"/api/auth/{path}", body, token=token)
        assert answer.status_code == 400, code
        assert answer.json()["error"].startswith("code: must be the 6 digits")


@pytest.mark.parametrize(
    ("seconds", "status"),
    [(-60, 401), (-30, 200), (0, 200), (30, 200), (60, 401)],
    ids=["two back", "one back", "now", "one ahead", "two ahead"],
)
async def test_a_code_of_this_step(
    daemon: Daemon, token: str, phone: Phone, seconds: int, status: int
) -> None:
    secret = await phone.enable(daemon, token)
    phone.wall.ahead += 3600  # away from the code that enabling has used up
    assert await verify(daemon, phone.shows(secret, ahead=seconds)) == status


async def test_a_code_is_good_once(daemon: Daemon, token: str, phone: Phone) -> None:
    secret = await phone.enable(daemon, token)
    assert await verify(daemon, phone.shows(secret, ahead=-30)) == 401  # enabling took this one
    assert await verify(daemon, phone.shows(secret)) == 200
    assert await verify(daemon, phone.shows(secret)) == 401
    body = {"code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/2fa/disable", body, token=token)).status_code == 401


async def test_a_code_is_good_once_over_a_restart(start: Start, phone: Phone) -> None:
    first = await start()
    secret = await phone.enable(first, await first.login())
    assert await verify(first, phone.shows(secret)) == 200
    await first.stop()
    second = await start()
    assert await verify(second, phone.shows(secret)) == 401
    assert await verify(second, phone.shows(secret, ahead=30)) == 200


async def test_a_clock_that_was_ahead_locks_nobody_out(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await phone.enable(daemon, token)
    phone.wall.ahead += DAY
    assert await verify(daemon, phone.shows(secret)) == 200
    phone.wall.ahead -= DAY
    assert await verify(daemon, phone.shows(secret)) == 200


async def test_it_survives_a_restart(start: Start, phone: Phone) -> None:
    first = await start()
    token = await first.login()
    secret = await phone.enable(first, token)
    await first.stop()
    second = await start()
    assert (await second.get("/api/status", token=token)).status_code == 200
    assert await verify(second, phone.shows(secret)) == 200
