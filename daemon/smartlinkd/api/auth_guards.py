"""Guards of operations: sessions, API keys and their scopes, the sync key, and local clients.

`Guards` has a member for each kind of access. Those that take a `scope` refuse an API key without
it; `crew_caller` refuses one without `crews`. A guard runs before the body is read, so a client
without access does not learn what a body should be. It runs again when the body is there, because
a session can end in the meantime.
"""

from __future__ import annotations

import hmac
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

import trio
from pydantic import SecretStr
from quart import after_this_request, request
from quart.typing import ResponseTypes

from smartlinkd.api.client_address import ApiClient, came_over_https, identify, is_own_page
from smartlinkd.api.operations import Access, bearer
from smartlinkd.api.services import Services
from smartlinkd.auth.actor import ApiKey, Claims
from smartlinkd.auth.keys import PREFIX, Scope, WrongKey
from smartlinkd.auth.throttle import network_of
from smartlinkd.auth.tokens import LIFETIME
from smartlinkd.crews.model import CrewUser
from smartlinkd.errors import NotAllowed, WrongToken
from smartlinkd.logs import LogEvent

logger = logging.getLogger(__name__)

OWNER: Final = "owner"
LOCAL: Final = "local"

NOTICED: Final = 10
"""Wrong keys of one network within `WINDOW` after which one record is logged."""
WINDOW: Final = 3600.0
"""Seconds from the first wrong key on, after which all counts begin again."""
MAX_NETWORKS: Final = 100
"""Networks that have a count of their own. All others have one together."""

_OTHERS: Final = "others"


@dataclass(frozen=True)
class Visitor:
    """A client with a session, and the address that throttling goes by."""

    session: Claims
    address: str


@dataclass(frozen=True)
class Client:
    """The caller of an operation that API keys may open, too.

    `name` is "owner" for a session, "local" for open access, "sync key", or an API key's name.
    `key_id` is None unless an API key was sent.
    """

    name: str
    key_id: str | None = None


@dataclass(frozen=True)
class Credential:
    """The token that a request brings. It outlives the request: streams are checked again."""

    token: str | None
    address: str
    is_cookie: bool = False

    @property
    def key(self) -> str | None:
        """The API key, if it is one."""
        is_key = self.token is not None and self.token.startswith(PREFIX) and not self.is_cookie
        return self.token if is_key else None


class FailedKeys:
    """Counts wrong sync keys and API keys; the tenth of a network within an hour is logged.

    It refuses nobody: behind a proxy that forwards no addresses a right key has to be good however
    many were wrong. Networks beyond the first hundred count as one, so that a flood from everywhere
    is neither a flood of records nor a way to guess unseen.
    """

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._over_at = -inf

    def note(self, address: str) -> None:
        """Count one wrong key from `address`."""
        now = trio.current_time()
        if now >= self._over_at:
            self._counts.clear()
            self._over_at = now + WINDOW
        network = network_of(address)
        if network not in self._counts and len(self._counts) >= MAX_NETWORKS:
            network = _OTHERS
        self._counts[network] += 1
        if self._counts[network] == NOTICED:
            source = (
                address if network != _OTHERS else f"many addresses, {address} the last of them"
            )
            text = "%d wrong keys came within an hour from %s; nobody is refused for that"
            logger.warning(text, NOTICED, source, extra=LogEvent.SYNC_KEY_GUESSED())


class Guards:
    """The kinds of access of the affiliate service and the crews."""

    def __init__(self, services: Services) -> None:
        self._auth = services.auth
        self._crew_tokens = services.crews.tokens
        self._client_access = services.rules.client_access
        self._sync_key = services.sync_key
        self._failed_keys = FailedKeys()
        self.anyone = Access(self._caller, bearer_use="none", refusals=())
        self.session = Access(self._visitor, bearer_use="required")
        self.any_key = Access(self._any_key, bearer_use="required")

    def scoped(self, scope: Scope) -> Access:
        """Return the access of sessions, and of API keys with this scope."""
        return Access(partial(self._scoped, scope), bearer_use="required", scope=scope)

    def local_or_scoped(self, scope: Scope) -> Access:
        """Return the access of local clients, sessions, and API keys with this scope.

        A key that was sent is what counts, also from a local client.
        """
        admit = partial(self._local_or_scoped, scope)
        return Access(admit, bearer_use="optional", scope=scope)

    def local_or_key(self, scope: Scope) -> Access:
        """Return the access of local clients, sessions, the sync key, and keys with this scope."""
        admit = partial(self._local_or_key, scope)
        return Access(admit, bearer_use="optional", scope=scope)

    async def _caller(self) -> ApiClient:
        return identify(request.remote_addr, request.headers, self._client_access)

    async def credential(self) -> Credential:
        """Return what the current request shows: its `Authorization` header, else the cookie."""
        given, address = bearer(), (await self._caller()).address
        if given is not None or "Authorization" in request.headers or not request.cookies:
            return Credential(given, address)
        if not is_own_page(request.method, request.headers):
            return Credential(None, address)
        token = request.cookies.get(await self._auth.cookie_name())
        return Credential(token, address, is_cookie=token is not None)

    async def set_session_cookie(self, token: str) -> None:
        """Have the answer to the current request set the page's session cookie (RFC 6265bis)."""
        await self._send_cookie(token, LIFETIME["session"])

    async def clear_session_cookie(self) -> None:
        """Have the answer make a browser forget the session cookie, if it sent one."""
        if await self._auth.cookie_name() in request.cookies:
            await self._send_cookie("", 0)

    async def _send_cookie(self, value: str, max_age_s: int) -> None:
        name = await self._auth.cookie_name()
        cookie = f"{name}={value}; Max-Age={max_age_s}; Path=/; HttpOnly; SameSite=Strict"
        if came_over_https(request.remote_addr, request.headers, self._client_access):
            cookie += "; Secure"

        async def add(response: ResponseTypes) -> ResponseTypes:
            response.headers["Set-Cookie"] = cookie
            return response

        after_this_request(add)

    async def _visitor(self) -> Visitor:
        shown = await self.credential()
        if shown.key is not None:
            await self._check_key(shown.key, shown.address)
            raise NotAllowed(
                "no API key opens this; log in at /api/auth/login and send the session token"
            )
        return Visitor(await self._auth.check_session(shown.token), shown.address)

    async def _any_key(self) -> Client:
        shown = await self.credential()
        if shown.key is None:
            raise NotAllowed(
                "this is about the API key that is sent; send one as `Authorization: Bearer …`"
            )
        key = await self._check_key(shown.key, shown.address)
        return Client(key.name, key.id)

    async def _scoped(self, scope: Scope) -> Client:
        shown = await self.credential()
        if shown.key is not None:
            key = await self._check_key(shown.key, shown.address)
            _check_scope(key, scope)
            return Client(key.name, key.id)
        await self._auth.check_session(shown.token)
        return Client(OWNER)

    async def _local_or_scoped(self, scope: Scope) -> Client:
        caller = await self._caller()
        if caller.is_local and (await self.credential()).key is None:
            return Client(LOCAL)
        return await self._scoped(scope)

    async def _local_or_key(self, scope: Scope) -> Client:
        given, caller = bearer(), await self._caller()
        if _same(given, self._sync_key):
            return Client("sync key")
        if caller.is_local or (await self.credential()).key is not None:
            return await self._local_or_scoped(scope)
        try:
            return await self._scoped(scope)
        except NotAllowed:
            if given is not None and self._sync_key:
                self._failed_keys.note(caller.address)
            raise NotAllowed(
                "this is open to local requests only, and yours is none: "
                f"{caller.reason_refused}; send a session token, an API key with the scope {scope} "
                "or the sync key as `Authorization: Bearer …`"
            ) from None

    async def _check_key(self, given: str, address: str) -> ApiKey:
        """Return the key that was sent. Raises `WrongKey`, which is counted."""
        try:
            return await self._auth.check_key(given)
        except WrongKey:
            self._failed_keys.note(address)
            raise

    async def crew_caller(self, crew: str, shown: Credential) -> CrewUser:
        """Return the caller of a crew: by its token, the page's session, or an API key.

        Raises:
            WrongToken: None of them is right.
            NotAllowed: The API key lacks the scope `crews`.
        """
        if shown.key is None and not shown.is_cookie:
            return await self._crew_tokens.caller(crew, shown.token)
        key: ApiKey | None = None
        try:
            if shown.key is None:
                await self._auth.check_session(shown.token)
            else:
                key = await self._check_key(shown.key, shown.address)
        except NotAllowed as refusal:
            raise WrongToken(str(refusal)) from None
        if key is not None:
            _check_scope(key, "crews")
        return self._crew_tokens.organization(crew)


def _check_scope(key: ApiKey, scope: Scope) -> None:
    if scope not in key.scopes:
        raise NotAllowed(
            f"the API key does not have the scope {scope}; make one that has it on the page under "
            "Security, or with `smartlinkd keys create`"
        )


def _same(given: str | None, key: SecretStr) -> bool:
    expected = key.get_secret_value()
    if given is None or not expected:
        return False
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
