"""Login, the second factor, sessions and the throttle over HTTP.

The rules of tokens and codes are in tests/auth and tests/contract.
"""

from __future__ import annotations

import base64
import stat
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio
from httpx import Response
from trio.testing import MockClock

from smartlinkd.admin.control_socket import call

if TYPE_CHECKING:
    from tests.api.conftest import Conformity, Daemon, Phone, Start, Wall

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


PASSWORD = {"password": "correct horse battery staple"}


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


async def test_operator_ends_the_session_that_enable_spared(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    secret = await phone.enable(daemon, token)
    waiting = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret)}
    await call(daemon.state, "tokens revoke")
    assert not await is_good(daemon, token)
    assert (await daemon.post("/api/auth/verify-mfa", waiting)).status_code == 403


async def test_operator_switches_the_second_factor_off(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    await phone.enable(daemon, token)
    assert (await call(daemon.state, "2fa off"))["ok"] is True
    assert await is_good(daemon, await daemon.login())


async def test_configured_signing_secret_is_not_written(start: Start) -> None:
    first = await start(auth={"signing_secret": "ab" * 32})
    token = await first.login()
    await first.stop()
    assert not (first.state / "signing-secret").exists()
    second = await start(auth={"signing_secret": "ab" * 32})
    assert await is_good(second, token)
    await second.stop()
    assert not await is_good(await start(auth={"signing_secret": "cd" * 32}), token)


async def test_state_files_are_private(daemon: Daemon, token: str) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in daemon.state.iterdir()}
    assert modes.pop("runs") == 0o700
    assert {"auth.json", "signing-secret", "crew-master-secret", "journal.sqlite3"} < set(modes)
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(daemon.state.stat().st_mode) == 0o700


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
