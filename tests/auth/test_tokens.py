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
    """An HMAC token made without any library."""
    head = header or {"alg": "HS256", "typ": "JWT"}
    text = ".".join(
        b64(json.dumps(part, separators=(",", ":")).encode()) for part in (head, claims)
    )
    return f"{text}.{b64(hmac.digest(key, text.encode(), digest or 'sha256'))}"


def read(token: str, purpose: Purpose = "session", now: float = NOW) -> Claims:
    return tokens.read(token, purpose, now=now)


def refused(token: str, purpose: Purpose = "session", now: float = NOW) -> None:
    with pytest.raises(NotAllowed) as error:
        read(token, purpose, now)
    assert str(error.value) == str(refusal(purpose))


def test_makes_the_token_that_the_standard_describes() -> None:
    made = Tokens(SecretBytes(SECRET), SecretStr(HASH)).issue(
        "session", jti="one", epoch="first", now=NOW + 0.9
    )

    assert made == signed(session())


def test_the_temporary_token_differs_in_purpose_and_lifetime() -> None:
    made = tokens.issue("mfa", jti="one", epoch="first", now=NOW)

    assert made == signed(session(purpose="mfa", exp=NOW + FIVE_MINUTES))


def test_reads_back_what_it_made() -> None:
    claims = read(tokens.issue("session", jti="one", epoch="first", now=NOW))

    assert claims.model_dump() == session()


def test_a_token_of_another_purpose_is_refused() -> None:
    refused(tokens.issue("mfa", jti="one", epoch="first", now=NOW), "session")
    refused(tokens.issue("session", jti="one", epoch="first", now=NOW), "mfa")


def test_the_refusals_say_what_to_do() -> None:
    assert str(refusal("session")) == (
        "the session token is invalid or has expired; log in again at /api/auth/login"
    )
    assert str(refusal("mfa")) == (
        "tempToken: is invalid, used or expired; log in again at /api/auth/login for a new one"
    )


@pytest.mark.parametrize(("purpose", "lifetime"), [("session", WEEK), ("mfa", FIVE_MINUTES)])
def test_a_token_is_good_to_the_end_of_its_lifetime(purpose: Purpose, lifetime: int) -> None:
    token = tokens.issue(purpose, jti="one", epoch="first", now=NOW)

    read(token, purpose, NOW + lifetime - 0.1)
    refused(token, purpose, NOW + lifetime)


@pytest.mark.parametrize("claim", ["iat", "nbf"])
def test_a_token_of_the_future_is_refused_but_for_a_clock_step(claim: str) -> None:
    token = signed(session(**{claim: NOW + 60}))

    read(token)
    refused(token, now=NOW - 0.1)


@pytest.mark.parametrize("claim", list(session()))
def test_every_claim_is_required(claim: str) -> None:
    claims = session()
    del claims[claim]

    refused(signed(claims))


@pytest.mark.parametrize(
    "wrong",
    [
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
    ],
    ids=str,
)
def test_every_claim_is_checked(wrong: dict[str, Any]) -> None:
    refused(signed(session(**wrong)))


def test_a_new_password_ends_all_tokens() -> None:
    token = tokens.issue("session", jti="one", epoch="first", now=NOW)
    after = Tokens(SecretBytes(SECRET), SecretStr(HASH[:-1] + "Q"))

    with pytest.raises(NotAllowed):
        after.read(token, "session", now=NOW)


def test_the_password_hash_is_not_in_the_token() -> None:
    payload = tokens.issue("session", jti="one", epoch="first", now=NOW).split(".")[1]
    claims = base64.urlsafe_b64decode(payload + "==")

    for told in (HASH, HASH.rpartition("$")[2], hashlib.sha256(HASH.encode()).hexdigest()[:32]):
        assert told.encode() not in claims


def test_another_secret_signs_nothing_here() -> None:
    refused(signed(session(), key=bytes(32)))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_tampered_token_is_refused(part: int) -> None:
    parts = signed(session()).split(".")
    parts[part] = parts[part][:5] + ("A" if parts[part][5] != "A" else "B") + parts[part][6:]

    refused(".".join(parts))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "HS256"},
        {"alg": "HS256", "typ": "JWT", "kid": "../../dev/null"},
        {"alg": "HS256", "typ": "JWT", "jku": "https://attacker.example/keys"},
        {"alg": "HS256", "typ": "JWT", "jwk": {"kty": "oct", "k": b64(SECRET)}},
        {"alg": "HS256", "typ": "JWT", "crit": ["b64"], "b64": False},
        {"alg": "RS256", "typ": "JWT"},
        {"alg": "ES256", "typ": "JWT"},
        {"alg": "hs256", "typ": "JWT"},
        {"alg": "none", "typ": "JWT"},
    ],
    ids=lambda header: "-".join(map(str, header.values())),
)
def test_any_header_but_ours_is_refused_though_well_signed(header: dict[str, Any]) -> None:
    refused(signed(session(), header=header))


def test_another_hash_is_refused_though_well_signed() -> None:
    refused(signed(session(), header={"alg": "HS512", "typ": "JWT"}, digest="sha512"))
    refused(signed(session(), digest="sha512"))


@pytest.mark.parametrize("alg", ["none", "None", "NONE"])
def test_an_unsigned_token_is_refused(alg: str) -> None:
    head, payload, _ = signed(session(), header={"alg": alg, "typ": "JWT"}).split(".")

    refused(f"{head}.{payload}.")


def test_a_token_with_its_signature_left_out_is_refused() -> None:
    refused(signed(session()).rpartition(".")[0] + ".")


@pytest.mark.parametrize(("length", "decoded"), [(1024, True), (1025, False)])
def test_an_oversized_token_is_refused_undecoded(
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
def test_what_is_no_token_is_refused(text: str) -> None:
    refused(text)
    refused(signed(session()).partition(".")[0] + "." + text)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 400])
def test_a_payload_that_holds_no_claims_is_refused(payload: bytes) -> None:
    text = f"{signed(session()).partition('.')[0]}.{b64(payload)}"

    refused(f"{text}.{b64(hmac.digest(SECRET, text.encode(), 'sha256'))}")


def test_nothing_shows_the_secret_or_the_hash() -> None:
    assert "\\x01\\x02" not in repr(vars(tokens))
    assert HASH not in repr(vars(tokens))


# Those that are known already


def test_a_known_token_is_still_read_for_its_time_and_purpose() -> None:
    token = signed(session())
    assert read(token) == read(token)
    refused(token, "mfa")
    refused(token, now=NOW + WEEK)
    refused(token, now=NOW - 3600)
    assert read(token, now=NOW + WEEK - 1)


def test_read_changed_token_is_refused() -> None:
    token = signed(session())
    read(token)
    head, payload, signature = token.split(".")
    refused(f"{head}.{payload}.{signature[:-4]}AAAA")
    refused(f"{head}.{b64(json.dumps(session(jti='two')).encode())}.{signature}")
    refused(token + "\u00e9")
