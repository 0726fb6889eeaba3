"""The bodies of the affiliate service, as the seed gives them (sections 2 and 4).

In a request, null counts as left out where a field may be left out. What only the owner may read is
a `SecretStr` there, which no print shows.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from daemon.marketplace.products import ProductData
from daemon.wire import Body, Timestamp

MAX_LINKS = 15
MAX_SUB_IDS = 5
MAX_SUB_ID = 50


def _sub_id(value: str) -> str:
    if value and not (value.isascii() and value.isalnum() and len(value) <= MAX_SUB_ID):
        raise ValueError(f"must be 1 to {MAX_SUB_ID} letters a-z, A-Z and digits, or empty")
    return value


SubId = Annotated[
    str,
    AfterValidator(_sub_id),
    Field(
        description=f"letters and digits, at most {MAX_SUB_ID}; empty keeps the position",
        json_schema_extra={"pattern": f"^[A-Za-z0-9]{{0,{MAX_SUB_ID}}}$"},
    ),
]


# Requests


class LoginRequest(Body):
    password: SecretStr


class VerifyMfaRequest(Body):
    temp_token: SecretStr
    code: SecretStr


class EnableRequest(Body):
    secret: SecretStr
    code: SecretStr


class DisableRequest(Body):
    code: SecretStr


class SyncCookieRequest(Body):
    cookie: SecretStr
    account_name: str | None = None


class ConvertRequest(Body):
    links: Annotated[list[str], Field(min_length=1, max_length=MAX_LINKS)]
    sub_ids: Annotated[list[SubId], Field(max_length=MAX_SUB_IDS)] | None = None
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


class SuccessEntry(Body):
    short_link: str
    long_link: str
    fail_code: Literal[0] = 0
    product: ProductData | None


class FailureEntry(Body):
    error: Literal[True] = True
    fail_code: int


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
