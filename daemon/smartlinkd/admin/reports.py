"""Bodies of the owner's endpoints and of the shell's commands: status, accounts, keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from smartlinkd.admin.control_socket import Arguments
from smartlinkd.auth.keys import KeyDays, KeyName, KeyScopes
from smartlinkd.wire import Body, Timestamp

NOT_USED_YET = "not used yet"
"""The state of an account whose cookie is stored, and that no link was made for since the start."""


class PartReport(Body):
    """One supervised part. `nextRetry` is in seconds."""

    name: str
    state: str
    since: Timestamp
    restarts: int
    next_retry: float | None
    last_error: str | None


class BrowserReport(Body):
    """The browser; null fields while there is none."""

    state: str
    ready: bool
    since: Timestamp
    version: str | None
    pid: int | None
    restarts: int
    last_restart_reason: str | None
    jobs_running: int
    jobs_waiting: int
    contexts: int


class AccountReport(Body):
    """An account's state at the portal's last answer."""

    account: str = Field(description="the marketplace's user id, or a cookie's digest")
    state: str
    since: Timestamp
    reason: str | None


class CookieReport(Body):
    """The stored cookie, without the cookie."""

    account_name: str
    synced_at: Timestamp
    kept: bool = Field(description="by the service manager, over restarts of the daemon")


class ConversionReport(Body):
    """The conversion service: what waits, and what it remembers."""

    requests_waiting: int
    submits_waiting: int
    remembered_links: int
    remembered_products: int


class CrewReport(Body):
    """A crew of the configuration; `name` is null when that is what is wrong with it."""

    name: str | None
    state: Literal["ready", "broken"]
    default: bool
    base_address: str | None
    users: list[str]
    running: int
    waiting: int


class StoredCookieState(Body):
    """The stored cookie's state, without the cookie."""

    stored: bool
    account_name: str | None
    synced_at: Timestamp | None
    missing: list[str] = Field(description="names of cookies that the portal's session has")


class AccountEntry(Body):
    """An account's state at the portal, and the remedy."""

    name: str = Field(description="the marketplace's user id, or a cookie's digest")
    state: Literal["active", "session_lost", "paused"]
    since: Timestamp
    remedy: str | None
    reason: str | None  # last: `account show` cuts off what is long in other columns


class AccountResponse(Body):
    """The stored cookie and the accounts that links were made for, the cookie's own first."""

    ok: Literal[True] = True
    cookie: StoredCookieState
    accounts: list[AccountEntry]


class CrewTokenArguments(Arguments):
    """The crew and the user of a token; without a user it is the organization token."""

    name: str
    user: str | None = None
    rotate: bool = False


class KeyReport(Body):
    """An API key, without the key."""

    id: str
    name: str
    scopes: list[str]
    created_at: Timestamp
    expires_at: Timestamp | None
    last_used_at: Timestamp | None
    hint: str = Field(description="the key's last characters")


class CreateKeyArguments(Arguments):
    """The properties of a new API key."""

    name: KeyName
    scopes: KeyScopes
    expires_in_days: KeyDays | None = None


class RevokeKeyArguments(Arguments):
    """Which API key is to end."""

    id: str


class RevokeTokensArguments(Arguments):
    """With `keys`, the API keys end as well."""

    keys: bool = False


class StatusReport(Body):
    """The whole daemon at one moment.

    What a part reports of itself is null while it cannot be asked; `actors` says why.
    """

    ok: Literal[True] = True
    version: str
    started_at: Timestamp
    second_factor: bool | None
    actors: list[PartReport]
    browser: BrowserReport | None
    conversion: ConversionReport | None
    cookie: CookieReport | None = Field(description="null also when none is stored")
    accounts: list[AccountReport] | None
    crews: list[CrewReport]
