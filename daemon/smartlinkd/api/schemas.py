"""Request and response bodies of the owner's API (docs/api.md).

In a request, null in an optional field means that it is left out, and a secret is a `SecretStr`,
which no print shows.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, JsonValue, SecretStr

from smartlinkd.admin.reports import KeyReport
from smartlinkd.auth.keys import KeyDays, KeyName, KeyScopes
from smartlinkd.auth.passwords import MAX_PASSWORD
from smartlinkd.conversion.schemas import (
    MAX_LINKS,
    MAX_SUB_IDS,
    FailureEntry,
    LinksRequest,
    SubId,
    SuccessEntry,
)
from smartlinkd.marketplace.products import ProductData
from smartlinkd.vault.actor import MAX_ACCOUNT_NAME
from smartlinkd.wire import Body, Timestamp, example

# Requests

_LINK = "https://shopee.vn/product/88201679/23456789012"
_MESSAGE = f"🔥 Deal: {_LINK} nhanh tay nhé!"

Code = Annotated[
    SecretStr,
    Field(
        description="the 6 digits that the authenticator app shows; spaces, dashes and line ends "
        "do not count",
        json_schema_extra={"pattern": "^[0-9]{3}[ -]?[0-9]{3}$"},
    ),
]
"""Only documented here, like the lengths below. `auth/totp.py` reads it: a text without
exactly six digits is refused, and does not count as a failed try."""


SessionKind = Annotated[
    Literal["token", "cookie"] | None,
    Field(description="cookie: the session is in a cookie that no script can read, for the page"),
]


class LoginRequest(Body):
    model_config = example({"password": "your long password"})

    password: Annotated[SecretStr, Field(json_schema_extra={"maxLength": MAX_PASSWORD})]
    session: SessionKind = None


class VerifyMfaRequest(Body):
    model_config = example({"tempToken": "eyJhbGciOi…", "code": "123456"})

    temp_token: SecretStr
    code: Code
    session: SessionKind = None


class RevokeRequest(Body):
    model_config = example({"keys": True})

    keys: Annotated[bool | None, Field(description="true: end the API keys, too")] = None


class EnableRequest(Body):
    model_config = example({"secret": "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP", "code": "123456"})

    secret: Annotated[
        SecretStr,
        Field(
            description="what setup gave out; letter case, spaces, dashes and line ends do not "
            "count"
        ),
    ]
    code: Code


class DisableRequest(Body):
    model_config = example({"code": "123456"})

    code: Code


PastedCookie = Annotated[
    SecretStr,
    Field(
        description="the value of the Cookie header that a browser sends to the affiliate portal; "
        "or what people paste of it: the header with its name or in quotes, a whole `curl` command "
        "copied from the browser, the JSON of a cookie extension, or a cookies.txt. Of the last "
        "two only the market's own cookies are taken. SPC_EC or SPC_ST has to be in it"
    ),
]
"""A cookie as `marketplace/cookie_text.py` reads it."""


class SyncCookieRequest(Body):
    model_config = example(
        {"cookie": "SPC_U=4711; SPC_EC=…; SPC_ST=…", "accountName": "My shop links"}
    )

    cookie: PastedCookie
    account_name: (
        Annotated[str, Field(json_schema_extra={"maxLength": MAX_ACCOUNT_NAME})] | None
    ) = None
    replace_account: Annotated[
        bool | None,
        Field(description="only with an API key: true to store another account's cookie"),
    ] = None


class ConvertRequest(LinksRequest):
    model_config = example({"links": [_LINK], "subIds": ["telegram"]})

    cookie: PastedCookie | None = None


MAX_EXTRACT_BYTES = 512 * 1024
MAX_TEXT_BYTES = 64 * 1024


def _at_most(size_bytes: int) -> AfterValidator:
    """Return a check of a text's size in UTF-8."""

    def check(text: str) -> str:
        size = len(text.encode())
        if size > size_bytes:
            raise ValueError(f"has {size} bytes, more than {size_bytes}; send it in pieces")
        return text

    return AfterValidator(check)


class ExtractRequest(Body):
    model_config = example({"text": _MESSAGE})

    text: Annotated[
        str,
        _at_most(MAX_EXTRACT_BYTES),
        Field(
            description=f"anything with links in it, at most {MAX_EXTRACT_BYTES // 1024} KiB",
            json_schema_extra={"maxLength": MAX_EXTRACT_BYTES},
        ),
    ]


class ConvertTextRequest(Body):
    model_config = example({"text": _MESSAGE, "subIds": ["zalo"]})

    text: Annotated[
        str,
        _at_most(MAX_TEXT_BYTES),
        Field(
            description=f"a message with at most {MAX_LINKS} different links in it, "
            f"at most {MAX_TEXT_BYTES // 1024} KiB",
            json_schema_extra={"maxLength": MAX_TEXT_BYTES},
        ),
    ]
    sub_ids: Annotated[list[SubId], Field(max_length=MAX_SUB_IDS)] | None = None
    cookie: PastedCookie | None = None


class KeyRequest(Body):
    model_config = example({"name": "telegram-bot", "scopes": ["convert"], "expiresInDays": 365})

    name: KeyName
    scopes: KeyScopes
    expires_in_days: KeyDays | None = None
    code: Annotated[Code | None, Field(description="needed while the second factor is on")] = None


class CrewTokenRequest(Body):
    model_config = example({"crew": "deal-post", "user": "telegram-bot"})

    crew: str
    user: Annotated[str | None, Field(description="without one: the organization's token")] = None


# Responses


class Failure(BaseModel):
    """The failure body."""

    ok: Literal[False] = False
    error: Annotated[str, Field(description="what is wrong and what to do")]


class DoneResponse(Body):
    """The base of the answers, and all of one that has nothing to tell."""

    ok: Literal[True] = True


class LoggedInResponse(DoneResponse):
    token: str
    mfa_required: Literal[False] = False


class CookieLoginResponse(DoneResponse):
    """The session is in a cookie."""

    mfa_required: Literal[False] = False


class SecondStepResponse(DoneResponse):
    mfa_required: Literal[True] = True
    temp_token: str


class TokenResponse(DoneResponse):
    token: str


class SetupResponse(DoneResponse):
    secret: Annotated[str, Field(description="Base32")]
    qr_code: Annotated[str, Field(description="data URI of a PNG image")]


class MessageResponse(DoneResponse):
    message: str


class SyncCookieResponse(DoneResponse):
    account_name: str
    synced_at: Timestamp
    paused: Annotated[
        Literal[True] | None,
        Field(
            description="only with an API key: the account is paused, and this did not end that",
            exclude_if=lambda paused: paused is None,
        ),
    ] = None


class StoredCookieResponse(DoneResponse):
    account_name: str
    synced_at: Timestamp
    cookie: str


class KeyResponse(DoneResponse):
    """A key that was made."""

    id: str
    key: Annotated[str, Field(description="shown this once")]
    name: str
    scopes: list[str]
    created_at: Timestamp
    expires_at: Timestamp | None


class KeysResponse(DoneResponse):
    keys: Annotated[list[KeyReport], Field(description="oldest first")]


class ConvertResponse(DoneResponse):
    mapping: dict[str, SuccessEntry | FailureEntry]

    def model_dump_json(self, *args: Any, **options: Any) -> str:
        """Return the JSON text. A link with half a character has the escape for it, as it came."""
        try:
            "".join(self.mapping).encode()
        except UnicodeEncodeError:  # pydantic would write U+FFFD, and the client not find its link
            return json.dumps(self.model_dump(*args, **options), separators=(",", ":"))
        return super().model_dump_json(*args, **options)


class ExtractedLink(Body):
    """A marketplace link and its place in the text."""

    link: str
    start: Annotated[int, Field(description="Unicode code points before it")]
    end: Annotated[int, Field(description="Unicode code points up to its end")]


class ExtractResponse(DoneResponse):
    links: list[ExtractedLink]


class ConvertTextResponse(ConvertResponse):
    text: Annotated[str, Field(description="the text with each converted link replaced")]


class HistoryEntry(Body):
    """A link that was converted."""

    id: str
    at: Timestamp
    link: Annotated[str, Field(description="as it was submitted")]
    short_link: str
    long_link: str
    sub_ids: list[str]
    product: ProductData | None
    client: Annotated[
        str, Field(description="an API key's name, `owner`, `local`, or `crew:` and its name")
    ]


class HistoryResponse(DoneResponse):
    entries: Annotated[list[HistoryEntry], Field(description="newest first")]
    next_cursor: Annotated[str | None, Field(description="null when there are no older ones")]


class ClearedResponse(DoneResponse):
    cleared: Annotated[int, Field(description="accounts that were paused or had lost a session")]


class InputEntry(Body):
    """One of the values that a kickoff brings."""

    name: str
    required: bool
    default: Annotated[JsonValue, Field(description="what stands in for one that is not required")]
    description: str


class CrewEntry(Body):
    """A crew. One with `problems` cannot run."""

    name: Annotated[str | None, Field(description="null when that is what is wrong with it")]
    default: bool
    base_urls: Annotated[
        list[str],
        Field(description="those that begin with / are on the address that this came from"),
    ]
    inputs: list[InputEntry]
    users: Annotated[list[str], Field(description="who has a User Bearer Token")]
    problems: list[str]
    running: int
    waiting: Annotated[int, Field(alias="queued")]


class CrewsResponse(DoneResponse):
    crews: list[CrewEntry]


class HealthResponse(DoneResponse):
    browser_ready: bool
    timestamp: Timestamp


class ReadyResponse(DoneResponse):
    status: Literal["ready"] = "ready"
