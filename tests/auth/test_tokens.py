"""Session tokens and temporary tokens."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import jwt
import pytest
from pydantic import SecretBytes, SecretStr

from smartlinkd.auth.tokens import Claims, Purpose, Tokens, refusal
from smartlinkd.errors import NotAllowed

SECRET = bytes(range(32))
HASH = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaA"
NOW = 1_700_000_000
WEEK, FIVE_MINUTES = 7 * 24 * 3600, 300

tokens = Tokens(SecretBytes(SECRET), SecretStr(HASH))


def session(**changes: Any) -> dict[str, Any]:
    """The claims of a good session token at NOW, written down by hand."""
    password = hmac.new(SECRET, b"password\0" + HASH.encode(), hashlib.sha256).hexdigest()[:32]
    good = {
        "iss": "smartlinkd",
        "aud": "smartlinkd",
        "iat": NOW,
        "nbf": NOW,
        "exp": NOW + WEEK,
        "jti": "one",
        "purpose": "session",
        "epoch": "first",
        "password": password,
    }
    return {**good, **changes}


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(
    claims: object, *, header: dict[str, Any] | None = None, key: bytes = SECRET, digest: str = ""
) -> str:
    """An HMAC token made without any library. A payload that is no JSON is given as bytes."""
    head = header or {"alg": "HS256", "typ": "JWT"}
    text = ".".join(
        b64(part if isinstance(part, bytes) else json.dumps(part, separators=(",", ":")).encode())
        for part in (head, claims)
    )
    return f"{text}.{b64(hmac.digest(key, text.encode(), digest or 'sha256'))}"


def read(token: str, purpose: Purpose = "session", now: float = NOW) -> Claims:
    return tokens.read(token, purpose, now=now)


def refused(token: str, purpose: Purpose = "session", now: float = NOW) -> None:
    with pytest.raises(NotAllowed) as error:
        read(token, purpose, now)
    assert str(error.value) == str(refusal(purpose))


def test_session_token_is_a_jwt_by_the_standard() -> None:
    made = Tokens(SecretBytes(SECRET), SecretStr(HASH)).issue(
        "session", jti="one", epoch="first", now=NOW + 0.9
    )

    assert made == signed(session())


def test_temporary_token_differs_in_purpose_and_lifetime() -> None:
    made = tokens.issue("mfa", jti="one", epoch="first", now=NOW)

    assert made == signed(session(purpose="mfa", exp=NOW + FIVE_MINUTES))


def test_token_of_another_purpose_is_refused() -> None:
    refused(tokens.issue("mfa", jti="one", epoch="first", now=NOW), "session")
    refused(tokens.issue("session", jti="one", epoch="first", now=NOW), "mfa")


@pytest.mark.parametrize(("purpose", "lifetime"), [("session", WEEK), ("mfa", FIVE_MINUTES)])
def test_token_is_refused_after_its_lifetime(purpose: Purpose, lifetime: int) -> None:
    token = tokens.issue(purpose, jti="one", epoch="first", now=NOW)

    read(token, purpose, NOW + lifetime - 0.1)
    refused(token, purpose, NOW + lifetime)


@pytest.mark.parametrize("claim", ["iat", "nbf"])
def test_token_of_the_future_is_refused_beyond_a_minute(claim: str) -> None:
    token = signed(session(**{claim: NOW + 60}))

    read(token)
    refused(token, now=NOW - 0.1)


def test_token_does_not_hold_the_password_hash() -> None:
    payload = tokens.issue("session", jti="one", epoch="first", now=NOW).split(".")[1]
    claims = base64.urlsafe_b64decode(payload + "==")

    for told in (HASH, HASH.rpartition("$")[2], hashlib.sha256(HASH.encode()).hexdigest()[:32]):
        assert told.encode() not in claims


def without(claim: str) -> dict[str, Any]:
    return {name: value for name, value in session().items() if name != claim}


def with_header(alg: str = "HS256", *, digest: str = "", **more: object) -> str:
    return signed(session(), header={"alg": alg, "typ": "JWT", **more}, digest=digest)


def unsigned(token: str) -> str:
    return token.rpartition(".")[0] + "."


WRONG_CLAIMS: list[dict[str, Any]] = [
    {"iss": "other"},
    {"aud": "other"},
    {"aud": ["smartlinkd"]},
    {"iat": str(NOW)},
    {"nbf": str(NOW)},
    {"exp": str(NOW + WEEK)},
    {"exp": None},
    {"jti": 1},
    {"purpose": "admin"},
    {"epoch": 1},
    {"password": "0" * 32},
    {"password": None},
]
FORGED = {
    **{f"without {name}": signed(without(name)) for name in session()},
    **{str(wrong): signed(session(**wrong)) for wrong in WRONG_CLAIMS},
    "empty": signed(b""),
    "cut off": signed(b"{"),
    "a list": signed(b"[]"),
    "null": signed(b"null"),
    "no UTF-8": signed(b"\xff"),
    "too deep": signed(b"[" * 400),
    "another secret": signed(session(), key=bytes(32)),
    "no signature": unsigned(signed(session())),
    **{f"unsigned {alg}": unsigned(with_header(alg)) for alg in ("none", "None", "NONE")},
    **{f"signed {alg}": with_header(alg) for alg in ("RS256", "ES256", "hs256", "none")},
    "HS512": with_header("HS512", digest="sha512"),
    "another hash": signed(session(), digest="sha512"),
    "no type": signed(session(), header={"alg": "HS256"}),
    "kid": with_header(kid="../../dev/null"),
    "jku": with_header(jku="https://attacker.example/keys"),
    "jwk": with_header(jwk={"kty": "oct", "k": b64(SECRET)}),
    "crit": with_header(crit=["b64"], b64=False),
}


@pytest.mark.parametrize("token", FORGED.values(), ids=list(FORGED))
def test_forged_token_is_refused(token: str) -> None:
    refused(token)


@pytest.mark.parametrize(("length", "decoded"), [(1024, True), (1025, False)])
def test_oversized_token_is_refused_undecoded(
    length: int, decoded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def decode(_: jwt.PyJWS, token: str, *__: object, **___: object) -> bytes:
        seen.append(token)
        return json.dumps(session()).encode()

    monkeypatch.setattr(jwt.PyJWS, "decode", decode)
    head = signed(session()).partition(".")[0] + "."

    if decoded:
        read(head.ljust(length, "x"))
    else:
        refused(head.ljust(length, "x"))
    assert bool(seen) is decoded


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a.b.c", "Bearer x", "\ud800", "é.é.é", "a" * 500],
)
def test_text_that_is_no_token_is_refused(text: str) -> None:
    refused(text)
    refused(signed(session()).partition(".")[0] + "." + text)


def test_tokens_show_neither_secret_nor_hash() -> None:
    assert "\\x01\\x02" not in repr(vars(tokens))
    assert HASH not in repr(vars(tokens))
