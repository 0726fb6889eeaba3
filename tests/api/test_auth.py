"""Login, the second factor, sessions and the throttle over HTTP.

The rules of tokens and codes are in tests/auth and tests/contract.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from httpx import Response
from trio.testing import MockClock

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start

DAY = 86_400


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


PASSWORD = {"password": "correct horse battery staple"}


async def begin(daemon: Daemon, token: str) -> str:
    """Return the secret of a new setup."""
    answer = await daemon.get("/api/auth/2fa/setup", token=token)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secret"])


async def is_on(daemon: Daemon) -> bool:
    """Return True if a login asks for a code."""
    return bool((await daemon.post("/api/auth/login", PASSWORD)).json()["mfaRequired"])


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


COOKIE = "SPC_U=4711; SPC_EC=.ec-of-4711"

"""A request body for each operation that has one and takes a session."""


async def is_good(daemon: Daemon, token: str) -> bool:
    return (await daemon.get("/api/status", token=token)).status_code == 200


async def test_restart_ends_no_session(start: Start) -> None:
    first = await start()
    token = await first.login()
    await first.stop()
    assert await is_good(await start(), token)


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
