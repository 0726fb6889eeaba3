"""Session tokens and the temporary tokens of unfinished logins. Pure; the caller has the clock.

Both are JWTs (RFC 7519) signed with HS256 (RFC 7518, section 3.2). The claim `purpose` tells them
apart. A token must begin with exactly the header that the daemon writes, which refuses `alg: none`,
public-key algorithms, `kid`, `jku`, `jwk` and `crit` unparsed. `password` binds a token to the
configured hash, `epoch` to `auth.json`. See docs/decisions/031-files-and-tokens.md.
"""

from __future__ import annotations

import hmac
from typing import Final, Literal

from jwt import PyJWS, PyJWTError
from pydantic import BaseModel, ConfigDict, SecretBytes, SecretStr

from smartlinkd.errors import NotAllowed

Purpose = Literal["session", "mfa"]

LIFETIME: Final[dict[Purpose, int]] = {"session": 7 * 24 * 3600, "mfa": 5 * 60}
"""Seconds (docs/api.md)."""

MAX_TOKEN: Final = 1024
"""Characters; the daemon's own have about 380."""

CLOCK_SKEW: Final = 60
"""Seconds by which the clock may have been set back since a token was made (an NTP step)."""

_ALGORITHM: Final = "HS256"
_HEADER: Final = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
"""The encoded header of each token: {"alg":"HS256","typ":"JWT"}, as the library writes it."""

_REFUSAL: Final[dict[Purpose, str]] = {
    "session": "the session token is invalid or has expired; log in again at /api/auth/login",
    "mfa": "tempToken: is invalid, used or expired; log in again at /api/auth/login for a new one",
}


class Claims(BaseModel):
    """The payload of a token. Times are Unix seconds."""

    # Pydantic must not cache values: they are parts of tokens.
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
    """Return an HMAC of the hash, for places where the hash itself must not be."""
    message = b"password\0" + password_hash.get_secret_value().encode()
    return hmac.digest(secret.get_secret_value(), message, "sha256")[:16].hex()


def refusal(purpose: Purpose) -> NotAllowed:
    """Return the error for an invalid token. It does not say what is wrong with it."""
    return NotAllowed(_REFUSAL[purpose])


class Tokens:
    """Makes and reads the tokens of one signing secret (32 bytes) and one password."""

    def __init__(self, secret: SecretBytes, password_hash: SecretStr) -> None:
        self._secret = secret
        self._password = password_digest(secret, password_hash)

    def issue(self, purpose: Purpose, *, jti: str, epoch: str, now: float) -> str:
        """Return a token that is valid from `now` for `LIFETIME`."""
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
        return PyJWS().encode(payload, self._secret.get_secret_value(), _ALGORITHM)

    def read(self, token: str, purpose: Purpose, *, now: float) -> Claims:
        """Return the claims of a token. The caller has to check the epoch.

        Raises:
            NotAllowed: the token is not the daemon's, or of another purpose, password or time.
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
        try:
            payload = PyJWS().decode(
                token, self._secret.get_secret_value(), algorithms=[_ALGORITHM]
            )
            return Claims.model_validate_json(payload)
        except (PyJWTError, ValueError):  # ValueError: not UTF-8, or not these claims
            return None
