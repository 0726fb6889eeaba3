"""Failures outside of crews' paths: one shape, and the status that fits the cause."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest

from tests.config_file import WITHOUT_BROWSER

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Running

Json = dict[str, Any]

SECRET = "5b" * 32
MIB = 1 << 20
PROTECTED = [
    ("POST", "/api/convert"),
    ("GET", "/api/auth/2fa/setup"),
    ("POST", "/api/auth/2fa/enable"),
    ("POST", "/api/auth/2fa/disable"),
    ("GET", "/api/status"),
    ("GET", "/api/keys"),
]
FORGED: dict[str, dict[str, int | str | None]] = {
    "expired": {"exp": -10, "iat": -20, "nbf": -20},
    "not valid yet": {"nbf": 1000},
    "of another issuer": {"iss": "somebody"},
    "for another audience": {"aud": "somebody"},
    "of another purpose": {"purpose": "other"},
    "without an end": {"exp": None},
    "without an id": {"jti": None},
    "without its time": {"iat": None},
}
"""Claims that differ from a valid token's: seconds from now, a text, or None for a missing
claim."""


@pytest.fixture(scope="module")
def daemon(running: Running) -> Iterator[Daemon]:
    """A daemon without a browser, whose signing secret is known."""
    with running(**WITHOUT_BROWSER, auth={"signing_secret": SECRET}) as daemon:
        yield daemon


def error_of(answer: httpx.Response, status: int) -> str:
    """Return the error's text of a failure that has the contract's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    body: Json = answer.json()
    assert body.keys() == {"ok", "error"}
    assert body["ok"] is False
    assert len(body["error"]) > 5
    return str(body["error"])


async def claims_of(daemon: Daemon) -> Json:
    """Return the claims of a valid session token, and check its signature."""
    token = await daemon.login()
    claims: Json = jwt.decode(token, bytes.fromhex(SECRET), ["HS256"], audience="smartlinkd")
    return claims


def sign(claims: Json, *, secret: str = SECRET, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, bytes.fromhex(secret), algorithm)


async def test_unknown_path_is_404(daemon: Daemon) -> None:
    for path in ("/api/none", "/nothing", "/api/keys/x/y"):
        error_of(await daemon.ask("GET", path), 404)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_wrong_method_is_405_with_allow(daemon: Daemon, method: str) -> None:
    answer = await daemon.ask(method, "/api/convert")
    error_of(answer, 405)
    assert "POST" in answer.headers["Allow"]


async def test_body_over_one_mib_is_413(daemon: Daemon) -> None:
    fits = {"password": "x" * (MIB - 100)}
    error_of(await daemon.ask("POST", "/api/auth/login", fits), 400)
    error_of(await daemon.ask("POST", "/api/auth/login", {"password": "x" * MIB}), 413)


async def test_body_that_is_no_json_object_is_400(daemon: Daemon) -> None:
    token = await daemon.login()
    for body in (b"", b"{", b"[]", b'"text"', b"1", b"null", b'{"links": [}'):
        async with httpx.AsyncClient(base_url=daemon.url, trust_env=False) as client:
            answer = await client.post(
                "/api/convert",
                content=body,
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
        error_of(answer, 400)


async def test_wrong_content_type_is_400_that_names_it(daemon: Daemon) -> None:
    headers = {"Content-Type": "text/plain"}
    answer = await daemon.ask("POST", "/api/auth/login", {"password": "x"}, headers=headers)
    assert "Content-Type" in error_of(answer, 400)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/api/auth/login", {}, "password"),
        ("/api/auth/login", {"password": 1}, "password"),
        ("/api/auth/login", {"password": None}, "password"),
        ("/api/auth/verify-mfa", {"code": "123456"}, "tempToken"),
        ("/api/convert", {}, "links"),
        ("/api/convert", {"links": ["x"], "subIds": "a"}, "subIds"),
        ("/api/sync-cookie", {"accountName": "x"}, "cookie"),
        ("/api/sync-cookie", {"cookie": "SPC_EC=1", "accountName": 1}, "accountName"),
    ],
)
async def test_missing_or_mistyped_field_is_400_that_names_it(
    daemon: Daemon, path: str, body: Json, field: str
) -> None:
    answer = await daemon.ask("POST", path, body, token=await daemon.login())
    assert error_of(answer, 400).startswith(field)


async def test_unknown_field_is_ignored(daemon: Daemon) -> None:
    body = {"password": daemon.password, "unknown": {"deep": [1]}}
    answer = await daemon.ask("POST", "/api/auth/login", body)
    assert (answer.status_code, answer.json()["ok"]) == (200, True)
    daemon.secrets.add(answer.json()["token"])


@pytest.mark.parametrize(("method", "path"), PROTECTED)
async def test_protected_endpoint_without_a_good_token_is_403(
    daemon: Daemon, method: str, path: str
) -> None:
    for token in ("", "x", "a.b.c", "slk_unknown"):
        error_of(await daemon.ask(method, path, {}, token=token), 403)
    basic = {"Authorization": "Basic eDp5"}
    error_of(await daemon.ask(method, path, {}, headers=basic), 403)


async def test_token_with_its_own_claims_signed_again_is_good(daemon: Daemon) -> None:
    again = sign(await claims_of(daemon))
    daemon.secrets.add(again)
    assert (await daemon.ask("GET", "/api/status", token=again)).status_code == 200


@pytest.mark.parametrize("kind", FORGED)
async def test_token_with_a_wrong_claim_is_403(daemon: Daemon, kind: str) -> None:
    claims = await claims_of(daemon)
    for name, value in FORGED[kind].items():
        if value is None:
            del claims[name]
        else:
            claims[name] = int(time.time()) + value if isinstance(value, int) else value
    error_of(await daemon.ask("GET", "/api/status", token=sign(claims)), 403)


async def test_token_of_another_secret_or_algorithm_is_403(daemon: Daemon) -> None:
    claims = await claims_of(daemon)
    forged = [
        sign(claims, secret="6c" * 32),
        sign(claims, secret=SECRET * 2, algorithm="HS512"),
        jwt.encode(claims, "", "none"),
        sign(claims)[:-2],
    ]
    for token in forged:
        error_of(await daemon.ask("GET", "/api/status", token=token), 403)


async def test_session_token_has_all_claims_and_lives_seven_days(daemon: Daemon) -> None:
    claims = await claims_of(daemon)
    assert claims.keys() >= {"iss", "aud", "iat", "nbf", "exp", "jti", "purpose"}
    assert claims["exp"] - claims["iat"] == 7 * 24 * 3600
    assert jwt.get_unverified_header(await daemon.login())["alg"] == "HS256"
