"""Login and tokens, over HTTP.

| promised | test |
|---|---|
| seed 3, anonymous → authenticated | `test_the_password_alone_logs_in` |
| seed 3, anonymous → awaiting code | `test_with_the_second_factor_the_password_is_half_a_login` |
| seed 3, awaiting code → authenticated | `test_the_code_finishes_the_login` |
| seed 5.1, 5.2 and 5.4, what needs a token | `test_a_protected_endpoint_wants_a_token[…]` |
| seed 5.5, what does not | `test_an_open_endpoint_wants_none[…]` |
| seed 5.6 and 7, 401 | `test_a_wrong_password_is_401`, `test_a_wrong_code_is_401` |
| contract, 400; the document says from what length on | `test_what_is_too_long_…` |
| seed 5.6 and 7, 403; contract, bearer tokens | `test_this_is_no_session_token[…]` |
| seed 8, session of 7 days | `test_a_session_ends_after_seven_days` |
| seed 8, temporary token of 5 minutes | `test_a_temporary_token_ends_after_five_minutes` |
| contract, signing and claims | `test_what_a_token_says[…]`, `test_this_is_no_session_token[…]` |
| contract, the two kinds of token | `…_is_half_a_login`, `test_this_is_no_temporary_token[…]` |
| contract, tempToken single use, 5 codes | `test_a_temporary_token_is_used_once`, `…_dies_of_…` |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jwt
import pytest

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Phone, Start, Wall

DAY = 86_400
PROTECTED = [
    ("GET", "/api/auth/2fa/setup"),
    ("POST", "/api/auth/2fa/enable"),
    ("POST", "/api/auth/2fa/disable"),
    ("POST", "/api/convert"),
    ("GET", "/api/status"),
]
OPEN = [
    ("POST", "/api/auth/login", 400),
    ("POST", "/api/auth/verify-mfa", 400),
    ("POST", "/api/sync-cookie", 400),
    ("POST", "/api/sync-cookie-local", 400),
    ("GET", "/api/sync-cookie", 200),
    ("GET", "/api/health", 200),
]


# With the password alone


async def test_the_password_alone_logs_in(daemon: Daemon) -> None:
    answer = await daemon.post("/api/auth/login", {"password": "correct horse battery staple"})
    assert answer.status_code == 200
    body = answer.json()
    assert body == {"ok": True, "mfaRequired": False, "token": body["token"]}
    assert (await daemon.get("/api/status", token=body["token"])).status_code == 200


@pytest.mark.parametrize("password", ["wrong", "", "Correct horse battery staple", "🐴" * 1024])
async def test_a_wrong_password_is_401(daemon: Daemon, password: str) -> None:
    answer = await daemon.post("/api/auth/login", {"password": password})
    assert answer.status_code == 401
    assert answer.json()["error"] == "password: is wrong"


async def test_what_is_too_long_to_be_a_password_is_400_as_documented(daemon: Daemon) -> None:
    answer = await daemon.post("/api/auth/login", {"password": "🐴" * 1025})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("password: is longer than 1024 characters")
    schemas = (await daemon.get("/openapi.json")).json()["components"]["schemas"]
    assert schemas["LoginRequest"]["properties"]["password"]["maxLength"] == 1024


@pytest.mark.parametrize(("method", "path"), PROTECTED, ids=[path for _, path in PROTECTED])
async def test_a_protected_endpoint_wants_a_token(daemon: Daemon, method: str, path: str) -> None:
    answer = await daemon.ask(method, path, b"" if method == "POST" else None)
    assert answer.status_code == 403
    assert "/api/auth/login" in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"), OPEN, ids=[f"{method} {path}" for method, path, _ in OPEN]
)
async def test_an_open_endpoint_wants_none(
    daemon: Daemon, method: str, path: str, status: int
) -> None:
    answer = await daemon.ask(method, path, b"{}" if method == "POST" else None)
    assert answer.status_code == status


# What a token is


def claims_of(token: str) -> dict[str, Any]:
    found: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return found


def signing_secret(daemon: Daemon) -> bytes:
    return bytes.fromhex((daemon.state / "signing-secret").read_text().strip())


@pytest.mark.parametrize(
    ("kind", "purpose", "seconds"), [("session", "session", 7 * DAY), ("temporary", "mfa", 300)]
)
async def test_what_a_token_says(
    daemon: Daemon, phone: Phone, kind: str, purpose: str, seconds: int
) -> None:
    token = await daemon.login()
    if kind == "temporary":
        await phone.enable(daemon, token)
        token = await daemon.begin_login()
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    said = jwt.decode(
        token,
        signing_secret(daemon),
        algorithms=["HS256"],
        audience="smartlinkd",
        issuer="smartlinkd",
        # Neither time: the test's clock is ahead.
        options={
            "require": ["iss", "aud", "iat", "nbf", "exp", "jti"],
            "verify_iat": False,
            "verify_nbf": False,
        },
    )
    assert said["purpose"] == purpose
    assert said["exp"] - said["iat"] == seconds


async def test_a_token_of_each_login_is_its_own(daemon: Daemon) -> None:
    assert await daemon.login() != await daemon.login()


Forge = Callable[[str, bytes, dict[str, Any]], str]


def signed(claims: dict[str, Any], secret: bytes, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, secret, algorithm)


def without(claims: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key != name}


FORGED: dict[str, Forge] = {
    "one letter off": lambda token, _, __: token[:-2] + ("A" if token[-2] != "A" else "B") + "g",
    "unsigned": lambda token, _, __: token.rpartition(".")[0] + ".",
    "not a token": lambda *_: "garbage",
    "three dots": lambda *_: "..",
    "long": lambda token, _, __: token + "A" * 4000,
    "algorithm none": lambda _, __, claims: jwt.encode(claims, "", "none"),
    "another algorithm": lambda _, secret, claims: signed(claims, secret * 2, "HS512"),
    "another secret": lambda _, __, claims: signed(claims, bytes(32)),
    "another issuer": lambda _, secret, claims: signed(claims | {"iss": "x"}, secret),
    "another audience": lambda _, secret, claims: signed(claims | {"aud": "x"}, secret),
    "another purpose": lambda _, secret, claims: signed(claims | {"purpose": "mfa"}, secret),
    "another password": lambda _, secret, claims: signed(claims | {"password": "0" * 32}, secret),
    "expired": lambda _, secret, claims: signed(claims | {"exp": claims["iat"]}, secret),
    "not yet good": lambda _, secret, claims: signed(claims | {"nbf": claims["exp"]}, secret),
    "from the future": lambda _, secret, claims: signed(claims | {"iat": claims["exp"]}, secret),
} | {
    f"without {name}": lambda _, secret, claims, name=name: signed(without(claims, name), secret)
    for name in ("iss", "aud", "iat", "nbf", "exp", "jti", "purpose", "epoch", "password")
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
async def test_this_is_no_session_token(daemon: Daemon, token: str, forge: Forge) -> None:
    forged = forge(token, signing_secret(daemon), claims_of(token))
    answer = await daemon.get("/api/status", token=forged)
    assert answer.status_code == 403
    assert "log in again" in answer.json()["error"]


async def test_a_token_made_with_the_secret_is_good(daemon: Daemon, token: str) -> None:
    """The forgeries above fail for what they are, and not for how they are made."""
    made = signed(claims_of(token), signing_secret(daemon))
    assert (await daemon.get("/api/status", token=made)).status_code == 200


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic {}", "{}", "Token {}", "Bearer{}", "Bearer {} x"]
)
async def test_this_is_no_bearer_header(daemon: Daemon, token: str, header: str) -> None:
    request = (
        f"GET /api/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Authorization: {header.format(token)}\r\n\r\n"
    )
    assert (await daemon.raw(request.encode())).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_is_spelt_by_anyone_as_they_like(
    daemon: Daemon, token: str, scheme: str
) -> None:
    answer = await daemon.get("/api/status", Authorization=f"{scheme} {token}")
    assert answer.status_code == 200


async def test_a_session_ends_after_seven_days(wall: Wall, daemon: Daemon) -> None:
    token = await daemon.login()
    wall.ahead = 7 * DAY - 1
    assert (await daemon.get("/api/status", token=token)).status_code == 200
    wall.ahead = 7 * DAY
    assert (await daemon.get("/api/status", token=token)).status_code == 403


# With the second factor


async def test_with_the_second_factor_the_password_is_half_a_login(
    daemon: Daemon, token: str, phone: Phone
) -> None:
    await phone.enable(daemon, token)
    body = (
        await daemon.post("/api/auth/login", {"password": "correct horse battery staple"})
    ).json()
    assert body == {"ok": True, "mfaRequired": True, "tempToken": body["tempToken"]}
    assert (await daemon.get("/api/status", token=body["tempToken"])).status_code == 403


async def test_the_code_finishes_the_login(daemon: Daemon, phone: Phone) -> None:
    secret = await phone.enable(daemon, await daemon.login())
    body = {"tempToken": await daemon.begin_login(), "code": phone.shows(secret)}
    answer = await daemon.post("/api/auth/verify-mfa", body)
    assert answer.status_code == 200
    assert (await daemon.get("/api/status", token=answer.json()["token"])).status_code == 200


async def test_a_wrong_code_is_401(daemon: Daemon, phone: Phone) -> None:
    secret = await phone.enable(daemon, await daemon.login())
    body = {"tempToken": await daemon.begin_login(), "code": phone.wrong(secret)}
    answer = await daemon.post("/api/auth/verify-mfa", body)
    assert answer.status_code == 401
    assert answer.json()["error"].startswith("code: is wrong")


async def test_a_wrong_password_is_401_with_the_second_factor_too(
    daemon: Daemon, phone: Phone
) -> None:
    await phone.enable(daemon, await daemon.login())
    assert (await daemon.post("/api/auth/login", {"password": "wrong"})).status_code == 401


async def test_a_temporary_token_ends_after_five_minutes(daemon: Daemon, phone: Phone) -> None:
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


async def test_a_temporary_token_is_used_once(daemon: Daemon, phone: Phone) -> None:
    secret = await phone.enable(daemon, await daemon.login())
    temp_token = await daemon.begin_login()
    body = {"tempToken": temp_token, "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/verify-mfa", body)).status_code == 200
    body["code"] = phone.shows(secret, ahead=30)
    assert (await daemon.post("/api/auth/verify-mfa", body)).status_code == 403


async def test_a_temporary_token_dies_of_five_wrong_codes(daemon: Daemon, phone: Phone) -> None:
    secret = await phone.enable(daemon, await daemon.login())
    temp_token = await daemon.begin_login()
    wrong = {"tempToken": temp_token, "code": phone.wrong(secret)}
    tries = [(await daemon.post("/api/auth/verify-mfa", wrong)).status_code for _ in range(6)]
    assert tries == [401] * 5 + [403]
    right = {"tempToken": temp_token, "code": phone.shows(secret)}
    assert (await daemon.post("/api/auth/verify-mfa", right)).status_code == 403
    # and it alone
    right["tempToken"] = await daemon.begin_login()
    assert (await daemon.post("/api/auth/verify-mfa", right)).status_code == 200


@pytest.mark.parametrize("kind", ["a session token", "garbage", "empty", "forged"])
async def test_this_is_no_temporary_token(daemon: Daemon, phone: Phone, kind: str) -> None:
    session = await daemon.login()
    secret = await phone.enable(daemon, session)
    given = {
        "a session token": session,
        "garbage": "garbage",
        "empty": "",
        # never handed out, so nobody's code is spent on it
        "forged": signed(
            claims_of(await daemon.begin_login()) | {"jti": "f" * 32}, signing_secret(daemon)
        ),
    }[kind]
    body = {"tempToken": given, "code": phone.shows(secret)}
    answer = await daemon.post("/api/auth/verify-mfa", body)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("tempToken: ")


async def test_without_the_second_factor_there_is_no_second_step(daemon: Daemon) -> None:
    body = {"tempToken": await daemon.login(), "code": "123456"}
    assert (await daemon.post("/api/auth/verify-mfa", body)).status_code == 403


async def test_the_clock_of_the_first_start_is_no_matter(wall: Wall, start: Start) -> None:
    """A machine without a battery: its clock begins in 1970 and jumps ahead when it is set."""
    wall.began = 100.0
    daemon = await start()
    token = await daemon.login()
    assert (await daemon.get("/api/status", token=token)).status_code == 200
    wall.ahead = 1_700_000_000.0
    assert (await daemon.get("/api/status", token=token)).status_code == 403
    assert (await daemon.get("/api/status", token=await daemon.login())).status_code == 200
