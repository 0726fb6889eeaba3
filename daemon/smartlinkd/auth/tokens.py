"""Tokens: what they say, how they are signed, which are refused. Pure; the caller has the clock.

There are two kinds, told apart by their `purpose` claim: a session (7 days) and the temporary
token of a login that still waits for its code (5 minutes). Both are JWTs (RFC 7519) signed with
HS256 (RFC 7518, section 3.2).

Only the daemon makes these tokens and only it reads them, so nothing in one is up for
negotiation: a token has to begin with exactly the header that the daemon writes. That refuses
`alg: none`, public-key algorithms, and `kid`, `jku`, `jwk` or `crit` before any of it is parsed.
The claims are read by a strict model: all are there and of their type, or there is no token.
The time claims are checked here, since the library would ask the machine's clock.

`password` binds a token to the password it was given for: an HMAC of the configured hash under
the signing secret, so it tells nothing about the hash, and no token is good beside another one.
`epoch` names the era of tokens in which it was made; `auth/files.py` says which are valid.

Rejected: the library's own `jwt.decode`. It reads the clock itself, checks a claim's type only
where it checks its value, and would leave our own claims to a second step.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr

from smartlinkd.errors import NotAllowed
from smartlinkd.late_imports import needed

Purpose = Literal["session", "mfa"]

LIFETIME: Final[dict[Purpose, int]] = {"session": 7 * 24 * 3600, "mfa": 5 * 60}
"""Seconds (seed, section 8)."""

MOST_KNOWN: Final = 64
"""Tokens whose signature is not checked again; their time, purpose and epoch are, each time."""

MAX_TOKEN: Final = 1024
"""Characters; the daemon's own have about 430."""

CLOCK_SKEW: Final = 60
"""Seconds by which the clock may have been set back since a token was made (an NTP step)."""

_ALGORITHM: Final = "HS256"
_HEADER: Final = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
"""What each of our tokens begins with: {"alg":"HS256","typ":"JWT"}, as the library writes it."""

_REFUSAL: Final[dict[Purpose, str]] = {
    "session": "the session token is invalid or has expired; log in again at /api/auth/login",
    "mfa": "tempToken: is invalid, used or expired; log in again at /api/auth/login for a new one",
}


class Claims(BaseModel):
    """The payload of a token. Times are Unix seconds."""

    # The library keeps no token's parts.
    model_config = ConfigDict(strict=True, frozen=True, cache_strings="keys", defer_build=True)

    iss: Literal["smartlinkd"]
    aud: Literal["smartlinkd"]
    iat: int
    nbf: int
    exp: int
    jti: str
    purpose: Purpose
    epoch: str
    password: str


def password_digest(secret: SecretBytes, password_hash: SecretStr) -> str:
    """What stands for a configured hash where the hash itself must not be."""
    message = b"password\0" + password_hash.get_secret_value().encode()
    return hmac.digest(secret.get_secret_value(), message, "sha256")[:16].hex()


def refusal(purpose: Purpose) -> NotAllowed:
    """The one error for every token that is not good, whatever is wrong with it."""
    return NotAllowed(_REFUSAL[purpose])


class Tokens:
    """Makes and reads the tokens of one signing secret (32 bytes) and one password."""

    def __init__(self, secret: SecretBytes, password_hash: SecretStr) -> None:
        self._secret = secret
        self._password = password_digest(secret, password_hash)
        # By their digests, oldest first: whoever asks once, asks again, and no token is kept.
        self._known: dict[bytes, Claims] = {}

    def issue(self, purpose: Purpose, *, jti: str, epoch: str, now: float) -> str:
        """A token that is good from `now` for the lifetime of its purpose. Raises `Unavailable`."""
        made = int(now)
        claims = Claims(
            iss="smartlinkd",
            aud="smartlinkd",
            iat=made,
            nbf=made,
            exp=made + LIFETIME[purpose],
            jti=jti,
            purpose=purpose,
            epoch=epoch,
            password=self._password,
        )
        payload = claims.model_dump_json().encode()
        with needed():
            from jwt import PyJWS  # noqa: PLC0415 - see smartlinkd/late_imports.py

            return PyJWS().encode(payload, self._secret.get_secret_value(), _ALGORITHM)

    def read(self, token: str, purpose: Purpose, *, now: float) -> Claims:
        """The claims of a token that is ours, for this purpose and password, and in its time.

        Raises `NotAllowed`, or `Unavailable`. Whether its epoch is still good is the caller's to
        check.
        """
        claims = self._signed_claims(token)
        if (
            claims is None
            or claims.purpose != purpose
            or claims.password != self._password
            or now >= claims.exp
            or now < claims.nbf - CLOCK_SKEW
            or now < claims.iat - CLOCK_SKEW
        ):
            raise refusal(purpose)
        return claims

    def _signed_claims(self, token: str) -> Claims | None:
        if len(token) > MAX_TOKEN or not token.startswith(_HEADER) or not token.isascii():
            return None
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._known.get(digest)
        if claims is None:
            with needed():
                claims = self._read(token)
            if claims is None:
                return None
            self._known[digest] = claims
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return claims

    def _read(self, token: str) -> Claims | None:
        from jwt import PyJWS, PyJWTError  # noqa: PLC0415 - see smartlinkd/late_imports.py

        try:
            payload = PyJWS().decode(
                token, self._secret.get_secret_value(), algorithms=[_ALGORITHM]
            )
            return Claims.model_validate_json(payload)
        except (PyJWTError, ValueError):  # ValueError: not UTF-8, or not these claims
            return None
