"""The bodies of the affiliate service, as the seed gives them (sections 2 and 4).

In a request, null counts as left out where a field may be left out. What only the owner may read is
a `SecretStr` there, which no print shows.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, SecretStr

from daemon.auth.passwords import MAX_PASSWORD
from daemon.conversion.shapes import FailureEntry, LinksRequest, SuccessEntry
from daemon.vault.actor import MAX_ACCOUNT_NAME
from daemon.wire import Body, Timestamp

# Requests

Code = Annotated[
    SecretStr,
    Field(
        description="the 6 digits that the authenticator app shows",
        json_schema_extra={"pattern": "^[0-9]{6}$"},
    ),
]
"""Told here, as lengths are below, and looked at where codes are: what is none is no try."""


class LoginRequest(Body):
    password: Annotated[SecretStr, Field(json_schema_extra={"maxLength": MAX_PASSWORD})]


class VerifyMfaRequest(Body):
    temp_token: SecretStr
    code: Code


class EnableRequest(Body):
    secret: SecretStr
    code: Code


class DisableRequest(Body):
    code: Code


class SyncCookieRequest(Body):
    cookie: SecretStr
    account_name: (
        Annotated[str, Field(json_schema_extra={"maxLength": MAX_ACCOUNT_NAME})] | None
    ) = None


class ConvertRequest(LinksRequest):
    cookie: SecretStr | None = None


# Responses


class Failure(BaseModel):
    """The one failure body (seed, section 7)."""

    ok: Literal[False] = False
    error: Annotated[str, Field(description="what is wrong and what to do")]


class LoggedInResponse(Body):
    ok: Literal[True] = True
    token: str
    mfa_required: Literal[False] = False


class SecondStepResponse(Body):
    ok: Literal[True] = True
    mfa_required: Literal[True] = True
    temp_token: str


class TokenResponse(Body):
    ok: Literal[True] = True
    token: str


class SetupResponse(Body):
    ok: Literal[True] = True
    secret: Annotated[str, Field(description="Base32")]
    qr_code: Annotated[str, Field(description="data URI of a PNG image")]


class MessageResponse(Body):
    ok: Literal[True] = True
    message: str


class SyncCookieResponse(Body):
    ok: Literal[True] = True
    account_name: str
    synced_at: Timestamp


class StoredCookieResponse(SyncCookieResponse):
    cookie: str


class ConvertResponse(Body):
    ok: Literal[True] = True
    mapping: dict[str, SuccessEntry | FailureEntry]


class HealthResponse(Body):
    ok: Literal[True] = True
    browser_ready: bool
    timestamp: Timestamp


class AliveResponse(Body):
    ok: Literal[True] = True


class ReadyResponse(Body):
    ok: Literal[True] = True
    status: Literal["ready"] = "ready"
